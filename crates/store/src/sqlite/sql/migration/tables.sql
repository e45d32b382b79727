-- Counts all tables in the file, those that our programs create first, and ?1,
-- the table of applied migrations.
SELECT count(*), count(*) FILTER (WHERE name IN ('migration', 'switchboard_migration')),
    count(*) FILTER (WHERE name = ?1)
FROM sqlite_schema WHERE type = 'table'
