-- Reports. Programs from before may go on: they neither write nor read any, and forget duties by a
-- function that this migration replaces.

-- The newest report on each duty: how its work goes, written by its holder.
CREATE TABLE tenure.report (
    group_name text COLLATE "C" NOT NULL,
    duty text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL,
    number bigint NOT NULL,
    instance text COLLATE "C" NOT NULL,
    document bytea NOT NULL,
    written_at timestamptz NOT NULL,
    PRIMARY KEY (group_name, duty)
) WITH (fillfactor = 70);
