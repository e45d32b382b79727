-- The server's settings as this session has them. $1: their names.
-- What the user may not see is not in the view.
SELECT name, setting FROM pg_catalog.pg_settings WHERE name = ANY ($1)
