-- Reports. Programs from before may go on: they neither write nor read any, and the trigger deletes
-- the report of a duty that they forget.

-- The newest report on each duty: how its work goes, written by its holder.
CREATE TABLE report (
    group_name TEXT NOT NULL,
    duty TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    number INTEGER NOT NULL,
    instance TEXT NOT NULL,
    document BLOB NOT NULL,
    unix_ms INTEGER NOT NULL,
    PRIMARY KEY (group_name, duty)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER report_forgotten AFTER DELETE ON hold BEGIN
    DELETE FROM report WHERE group_name = OLD.group_name AND duty = OLD.duty;
END;
