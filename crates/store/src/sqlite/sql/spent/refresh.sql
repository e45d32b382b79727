-- Remembers for another week the nonces that the sweep kept. ?1 group
UPDATE spent SET unix_ms = CAST(unixepoch('subsec') * 1000 AS INTEGER)
WHERE group_name = ?1
    AND unix_ms < CAST(unixepoch('subsec') * 1000 AS INTEGER) - 7 * 24 * 60 * 60 * 1000
