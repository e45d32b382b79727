-- Number of known duties, and the newest epoch in the store.
SELECT (SELECT count(*) FROM (
        SELECT group_name, duty FROM hold UNION SELECT group_name, duty FROM checkpoint)),
    max(
        coalesce((SELECT max(epoch) FROM hold), 0),
        coalesce((SELECT max(epoch) FROM checkpoint), 0),
        coalesce((SELECT max(epoch) FROM history), 0),
        coalesce((SELECT max(epoch) FROM group_floor), 0),
        (SELECT floor FROM store))
