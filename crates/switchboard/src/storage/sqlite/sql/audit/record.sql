INSERT INTO token_audit_log
    (token_id, action_type, operator_identity, reason, performed_at, metadata)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
