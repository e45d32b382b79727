-- ?1 group, ?2 duty, ?3 version, ?4 epoch, ?5 instance, ?6 document
INSERT INTO checkpoint (group_name, duty, version, epoch, instance, document, unix_ms)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, CAST(unixepoch('subsec') * 1000 AS INTEGER))
ON CONFLICT (group_name, duty) DO UPDATE SET version = excluded.version, epoch = excluded.epoch,
    instance = excluded.instance, document = excluded.document, unix_ms = excluded.unix_ms
RETURNING unix_ms
