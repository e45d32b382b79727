DELETE FROM switchboard_replica WHERE seen_at <= ?1
