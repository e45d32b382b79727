SELECT connector_type, endpoint_identity, target_butler,
    least(sum(message_count), 9007199254740991)::bigint
FROM tenure.connector_fanout_daily WHERE day >= $1::date
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
