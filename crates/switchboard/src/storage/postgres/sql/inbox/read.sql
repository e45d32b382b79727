-- A page of the inbox. Positions have no gaps, so that a bound on them bounds the rows looked at.
WITH bounds AS MATERIALIZED (
    SELECT last, trimmed, least(last, greatest(least($1, last), trimmed) + 10000) AS upto
    FROM tenure.inbox_position WHERE only_row
), page AS (
    SELECT m.*, lead(true, 1, false) OVER line AS more,
        sum(octet_length(m.envelope)) OVER line - octet_length(m.envelope) AS bytes_before
    FROM (
        SELECT x.* FROM tenure.message_inbox x
        WHERE x.position > $1 AND x.position <= (SELECT upto FROM bounds)
            AND ($3 IS NULL OR x.source_channel = $3) AND ($4 IS NULL OR x.source_provider = $4)
            AND ($5 IS NULL OR x.source_sender_identity = $5)
            AND ($6 IS NULL OR x.source_thread_identity = $6)
            AND ($7 IS NULL OR x.received_at >= $7) AND ($8 IS NULL OR x.received_at < $8)
        ORDER BY x.position LIMIT $2
    ) AS m
    WINDOW line AS (ORDER BY m.position)
)
SELECT b.last, b.trimmed, b.upto, p.more, p.position, p.request_id, p.received_at,
    p.source_channel, p.source_provider, p.source_endpoint_identity, p.source_sender_identity,
    p.source_thread_identity, p.dedupe_key, p.authenticated_token_id, p.lifecycle_state, p.envelope
FROM bounds b LEFT JOIN page p ON p.bytes_before < 4194304
ORDER BY p.position
