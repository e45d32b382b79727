-- Tables in the file, those that a program of ours makes first, and the one of this owner.
-- ?1 the table of applied migrations
SELECT count(*), count(*) FILTER (WHERE name IN ('migration', 'switchboard_migration')),
    count(*) FILTER (WHERE name = ?1)
FROM sqlite_schema WHERE type = 'table'
