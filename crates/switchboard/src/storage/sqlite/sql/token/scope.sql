-- A token without a scope submits nothing, and must not match all sources.
SELECT coalesce(scope_channel, '-'), coalesce(scope_provider, '-'),
    coalesce(scope_endpoint_identity, '-')
FROM connector_tokens WHERE token_id = ?1
