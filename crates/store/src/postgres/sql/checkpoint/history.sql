-- $1 group, $2 duty
SELECT 0::bigint, version, epoch, instance, document,
    (extract(epoch FROM written_at) * 1000)::bigint
FROM tenure.history WHERE group_name = $1 AND duty = $2 ORDER BY version DESC
