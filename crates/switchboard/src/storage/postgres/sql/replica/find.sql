SELECT address FROM tenure.switchboard_replica
WHERE replica_id = $1 AND seen_at > clock_timestamp() - $2 * interval '1 microsecond'
