-- The client port as the server sees it; behind a pooler it is not our own.
SELECT inet_client_port()
