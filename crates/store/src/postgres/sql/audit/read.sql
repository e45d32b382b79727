-- $1 group, $2 after, $3 limit
SELECT seq, (extract(epoch FROM at) * 1000)::bigint, kind, instance, duty, epoch, reason
FROM tenure.audit WHERE group_name = $1 AND seq > $2 ORDER BY seq LIMIT $3
