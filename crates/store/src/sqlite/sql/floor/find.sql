-- What every grant in a group must be above. ?1 group
SELECT max(s.floor, coalesce(f.epoch, 0))
FROM store s LEFT JOIN group_floor f ON f.group_name = ?1
