-- The newest epoch of each duty, in order: one that was granted while a report waited, too.
-- $1 group, $2 duties
SELECT coalesce(greatest(h.epoch, c.epoch), 0)
FROM unnest($2::text[]) WITH ORDINALITY AS w(duty, item)
LEFT JOIN LATERAL (
    SELECT x.epoch FROM tenure.hold x WHERE x.group_name = $1 AND x.duty = w.duty OFFSET 0
) AS h ON true
LEFT JOIN LATERAL (
    SELECT x.epoch FROM tenure.checkpoint x WHERE x.group_name = $1 AND x.duty = w.duty OFFSET 0
) AS c ON true
ORDER BY w.item
