SELECT address FROM switchboard_replica WHERE replica_id = ?1 AND seen_at > ?2
