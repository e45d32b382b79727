DELETE FROM switchboard_replica WHERE replica_id = ?1
