INSERT INTO switchboard_replica (replica_id, address, seen_at) VALUES (?1, ?2, ?3)
ON CONFLICT (replica_id) DO UPDATE SET address = excluded.address, seen_at = excluded.seen_at
