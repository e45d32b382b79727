INSERT INTO connector_fanout_daily
    (connector_type, endpoint_identity, target_butler, day, message_count)
SELECT connector_type, endpoint_identity, target, date(acked_at / 1000000, 'unixepoch'), count(*)
FROM inbox_outcome WHERE arrival > ?1 AND arrival <= ?2 GROUP BY 1, 2, 3, 4
ON CONFLICT (connector_type, endpoint_identity, target_butler, day) DO UPDATE SET
    message_count = message_count + excluded.message_count
