-- A page of the inbox. Positions have gaps only where an incarnation ends, so a limit on them, from
-- the first message on, limits the rows read. It is at a message, so that a cursor can name it.
WITH place AS MATERIALIZED (
    SELECT p.last, p.trimmed, p.floor, p.last_id,
        coalesce((SELECT x.request_id FROM tenure.message_inbox x WHERE x.position = $1),
            CASE $1 WHEN p.last THEN p.last_id WHEN p.trimmed THEN p.trimmed_id END) AS at_id,
        (SELECT x.position FROM tenure.message_inbox x
            WHERE x.position > greatest($1, p.trimmed) ORDER BY x.position LIMIT 1) AS first
    FROM tenure.inbox_position p WHERE p.only_row
), bounds AS MATERIALIZED (
    SELECT p.*, e.position AS upto, e.request_id AS upto_id
    FROM place p LEFT JOIN LATERAL (
        SELECT x.position, x.request_id FROM tenure.message_inbox x
        WHERE x.position >= p.first AND x.position < p.first + 10000
        ORDER BY x.position DESC LIMIT 1
    ) AS e ON true
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
SELECT b.last, b.trimmed, coalesce(b.upto, b.last), p.more, p.position, p.request_id,
    p.received_at, p.source_channel, p.source_provider, p.source_endpoint_identity,
    p.source_sender_identity, p.source_thread_identity, p.dedupe_key, p.authenticated_token_id,
    p.lifecycle_state, p.envelope, b.floor, b.at_id, coalesce(b.upto_id, b.last_id)
FROM bounds b LEFT JOIN page p ON p.bytes_before < 4194304
ORDER BY p.position
