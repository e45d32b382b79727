-- True on a standby.
SELECT pg_is_in_recovery()
