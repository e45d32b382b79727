SELECT token_id, action_type, operator_identity, reason, performed_at, metadata
FROM token_audit_log ORDER BY id DESC LIMIT ?1
