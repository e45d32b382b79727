-- ?1 boot and time namespace
INSERT INTO meta VALUES ('boot', ?1)
ON CONFLICT (key) DO UPDATE SET value = excluded.value
