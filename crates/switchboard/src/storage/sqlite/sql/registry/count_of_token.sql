SELECT count(*) FROM connector_registry WHERE registered_token_id = ?1
