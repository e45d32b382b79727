SELECT connector_type, endpoint_identity, target_butler, sum(message_count)
FROM connector_fanout_daily INDEXED BY connector_fanout_daily_age WHERE day >= ?1
GROUP BY connector_type, endpoint_identity, target_butler
ORDER BY connector_type, endpoint_identity, target_butler
