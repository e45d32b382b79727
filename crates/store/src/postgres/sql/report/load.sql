-- $1 groups, $2 duties. Positions count from 1.
SELECT w.item, r.epoch, r.number, r.instance, r.document,
    (extract(epoch FROM r.written_at) * 1000)::bigint
FROM unnest($1, $2) WITH ORDINALITY AS w(group_name, duty, item)
CROSS JOIN LATERAL (
    SELECT * FROM tenure.report x
    WHERE x.group_name = w.group_name AND x.duty = w.duty OFFSET 0
) AS r
