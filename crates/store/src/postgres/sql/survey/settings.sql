-- The server's settings as this session sees them. $1: their names.
-- The view omits settings that the user may not see.
SELECT name, setting FROM pg_catalog.pg_settings WHERE name = ANY ($1)
