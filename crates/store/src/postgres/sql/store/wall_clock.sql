-- The server's wall clock in Unix milliseconds.
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::int8
