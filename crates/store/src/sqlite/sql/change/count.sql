-- ?1 group
INSERT INTO change (group_name, count) VALUES (?1, 1)
ON CONFLICT (group_name) DO UPDATE SET count = count + 1
