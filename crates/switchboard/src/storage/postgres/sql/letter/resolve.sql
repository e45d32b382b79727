-- Ends a dead letter that is pending: whether it did, and whether there is one.
WITH done AS (
    UPDATE tenure.dead_letter SET state = $2, resolved_at = tenure.switchboard_now(),
        resolved_by = $3, resolution = $4, request_id = $5
    WHERE id = $1 AND state = 'pending' RETURNING id
)
SELECT EXISTS (SELECT FROM done), EXISTS (SELECT FROM tenure.dead_letter WHERE id = $1)
