DELETE FROM tenure.switchboard_replica WHERE replica_id = $1
