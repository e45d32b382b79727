-- What must be there before migrations can be counted.
CREATE TABLE IF NOT EXISTS migration (
    number INTEGER NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    breaking TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS meta (
    key TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;
