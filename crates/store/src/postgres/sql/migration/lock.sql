-- Makes concurrent starts take turns. $1 schema
SELECT pg_advisory_xact_lock(hashtextextended('tenure migration ' || $1, 0))
