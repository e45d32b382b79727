-- ?1 incarnation, ?2 floor
UPDATE store SET incarnation = ?1, floor = ?2,
    adopted_unix_ms = CAST(unixepoch('subsec') * 1000 AS INTEGER)
