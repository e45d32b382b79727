SELECT EXISTS (SELECT FROM tenure.connector_tokens)
