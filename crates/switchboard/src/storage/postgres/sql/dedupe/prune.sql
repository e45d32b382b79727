-- Takes away keys that were not seen for $1 microseconds; those that were seen since upkeep looked
-- at them last are looked at again when that is over. How many were looked at, and are gone.
WITH old AS MATERIALIZED (
    SELECT ctid AS place,
        last_seen_at < clock_timestamp() - $1 * interval '1 microsecond' AS is_over
    FROM tenure.ingest_dedupe
    WHERE aging_since < clock_timestamp() - $1 * interval '1 microsecond'
    ORDER BY aging_since LIMIT 1000 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM tenure.ingest_dedupe
    WHERE ctid = ANY (ARRAY(SELECT place FROM old WHERE is_over)) RETURNING true
), kept AS (
    UPDATE tenure.ingest_dedupe SET aging_since = last_seen_at
    WHERE ctid = ANY (ARRAY(SELECT place FROM old WHERE NOT is_over))
)
SELECT (SELECT count(*) FROM old), (SELECT count(*) FROM gone)
