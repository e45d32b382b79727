-- The client port as the server sees it; a pooler in between has another one.
SELECT inet_client_port()
