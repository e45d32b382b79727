-- Keeps a pending dead letter that was refused again. Returns a row if it is pending.
UPDATE tenure.dead_letter SET error_class = $2, reason = $3, attempts = attempts + 1
WHERE id = $1 AND state = 'pending' RETURNING true
