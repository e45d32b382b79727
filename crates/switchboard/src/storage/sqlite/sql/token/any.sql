SELECT EXISTS (SELECT 1 FROM connector_tokens)
