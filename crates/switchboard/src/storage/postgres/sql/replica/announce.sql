-- Announces a replica: $1 id, $2 address. Deletes replicas not seen for $3 microseconds.
WITH gone AS (
    DELETE FROM tenure.switchboard_replica WHERE replica_id = ANY (ARRAY(
        SELECT replica_id FROM tenure.switchboard_replica
        WHERE seen_at <= (SELECT clock_timestamp() - $3 * interval '1 microsecond')
            AND replica_id <> $1
        FOR UPDATE SKIP LOCKED))
)
INSERT INTO tenure.switchboard_replica (replica_id, address, seen_at)
VALUES ($1, $2, clock_timestamp())
ON CONFLICT (replica_id) DO UPDATE SET address = excluded.address, seen_at = excluded.seen_at
