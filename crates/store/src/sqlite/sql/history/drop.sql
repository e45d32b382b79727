-- Deletes the entries that do not fit in a ring of ?1 slots.
DELETE FROM history WHERE (group_name, duty, slot) IN (
    SELECT group_name, duty, slot FROM (
        SELECT group_name, duty, slot, version,
            max(version) OVER (PARTITION BY group_name, duty) AS newest
        FROM history
    ) WHERE version <= newest - ?1
)
