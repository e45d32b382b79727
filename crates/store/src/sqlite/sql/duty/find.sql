-- Newest epoch of a duty and its instance; no row if the duty is unknown.
-- ?1 group, ?2 duty
SELECT max(epoch), instance FROM (
    SELECT epoch, instance FROM hold WHERE group_name = ?1 AND duty = ?2
    UNION ALL SELECT epoch, instance FROM checkpoint WHERE group_name = ?1 AND duty = ?2
    UNION ALL SELECT epoch, instance FROM history WHERE group_name = ?1 AND duty = ?2
    UNION ALL SELECT epoch, instance FROM report WHERE group_name = ?1 AND duty = ?2
) HAVING count(*) > 0
