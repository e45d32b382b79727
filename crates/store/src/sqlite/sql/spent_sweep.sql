-- What was used more than seven days ago. ?1 group
DELETE FROM spent WHERE group_name = ?1
    AND unix_ms < CAST(unixepoch('subsec') * 1000 AS INTEGER) - 7 * 24 * 60 * 60 * 1000
