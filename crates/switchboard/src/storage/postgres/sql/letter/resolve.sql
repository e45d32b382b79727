-- Resolves a pending dead letter. Returns why the token $6 has ended, done, exists.
WITH token AS MATERIALIZED (
    SELECT tenure.token_ended($6, false) AS ended
), done AS (
    UPDATE tenure.dead_letter SET state = $2, resolved_at = tenure.switchboard_now(),
        resolved_by = $3, resolution = $4, request_id = $5
    WHERE id = $1 AND state = 'pending' AND (SELECT ended FROM token) IS NULL RETURNING id
)
SELECT (SELECT ended FROM token), EXISTS (SELECT FROM done),
    EXISTS (SELECT FROM tenure.dead_letter WHERE id = $1)
