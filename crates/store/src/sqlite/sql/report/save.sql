-- ?1 group, ?2 duty, ?3 epoch, ?4 instance, ?5 document
INSERT INTO report (group_name, duty, epoch, instance, document, unix_ms)
VALUES (?1, ?2, ?3, ?4, ?5, CAST(unixepoch('subsec') * 1000 AS INTEGER))
ON CONFLICT (group_name, duty) DO UPDATE SET epoch = excluded.epoch,
    instance = excluded.instance, document = excluded.document, unix_ms = excluded.unix_ms
