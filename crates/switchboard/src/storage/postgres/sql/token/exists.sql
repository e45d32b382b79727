SELECT EXISTS (
    SELECT FROM tenure.connector_tokens WHERE revoked_at IS NULL AND expires_at > clock_timestamp()
)
