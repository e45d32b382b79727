-- Objects that must exist before migrations can be counted.
CREATE SCHEMA IF NOT EXISTS tenure;
CREATE TABLE IF NOT EXISTS tenure.migration (
    number bigint NOT NULL PRIMARY KEY,
    name text NOT NULL,
    breaking text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
