-- The server and this connection: in recovery, Unix milliseconds, over a Unix socket, encrypted.
SELECT pg_is_in_recovery(),
       (extract(epoch FROM clock_timestamp()) * 1000)::int8,
       inet_client_addr() IS NULL,
       (SELECT ssl FROM pg_catalog.pg_stat_ssl WHERE pid = pg_backend_pid())
