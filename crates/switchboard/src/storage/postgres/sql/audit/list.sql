SELECT token_id, action_type, operator_identity, reason, performed_at, metadata
FROM tenure.token_audit_log WHERE $1 IS NULL OR token_id = $1
ORDER BY id DESC LIMIT $2
