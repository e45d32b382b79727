-- A page of what one endpoint received. Rows are compared as pairs with the index of endpoints, so
-- that no plan goes through everybody's by position.
WITH bounds AS MATERIALIZED (
    SELECT last, trimmed, coalesce((
        SELECT x.position FROM tenure.message_inbox x
        WHERE (hashtextextended(x.source_endpoint_identity, 0), x.position)
                > (hashtextextended($9, 0), greatest($1, trimmed))
            AND (hashtextextended(x.source_endpoint_identity, 0), x.position)
                <= (hashtextextended($9, 0), last)
        ORDER BY hashtextextended(x.source_endpoint_identity, 0), x.position
        OFFSET 9999 LIMIT 1
    ), last) AS upto
    FROM tenure.inbox_position WHERE only_row
), page AS (
    SELECT m.*, lead(true, 1, false) OVER line AS more,
        sum(octet_length(m.envelope)) OVER line - octet_length(m.envelope) AS bytes_before
    FROM (
        SELECT x.* FROM tenure.message_inbox x
        WHERE (hashtextextended(x.source_endpoint_identity, 0), x.position)
                > (hashtextextended($9, 0), $1)
            AND (hashtextextended(x.source_endpoint_identity, 0), x.position)
                <= (hashtextextended($9, 0), (SELECT upto FROM bounds))
            AND x.source_endpoint_identity = $9
            AND ($3 IS NULL OR x.source_channel = $3) AND ($4 IS NULL OR x.source_provider = $4)
            AND ($5 IS NULL OR x.source_sender_identity = $5)
            AND ($6 IS NULL OR x.source_thread_identity = $6)
            AND ($7 IS NULL OR x.received_at >= $7) AND ($8 IS NULL OR x.received_at < $8)
        ORDER BY hashtextextended(x.source_endpoint_identity, 0), x.position LIMIT $2
    ) AS m
    WINDOW line AS (ORDER BY m.position)
)
SELECT b.last, b.trimmed, b.upto, p.more, p.position, p.request_id, p.received_at,
    p.source_channel, p.source_provider, p.source_endpoint_identity, p.source_sender_identity,
    p.source_thread_identity, p.dedupe_key, p.authenticated_token_id, p.lifecycle_state, p.envelope
FROM bounds b LEFT JOIN page p ON p.bytes_before < 4194304
ORDER BY p.position
