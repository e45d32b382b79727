-- Floor of a group: every grant must be above it. ?1 group
SELECT max(s.floor, coalesce(f.epoch, 0))
FROM store s LEFT JOIN group_floor f ON f.group_name = ?1
