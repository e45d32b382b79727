SELECT pg_is_in_recovery(), current_setting('server_encoding')
