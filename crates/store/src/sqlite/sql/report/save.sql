-- ?1 group, ?2 duty, ?3 epoch, ?4 number, ?5 instance, ?6 document
INSERT INTO report (group_name, duty, epoch, number, instance, document, unix_ms)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, CAST(unixepoch('subsec') * 1000 AS INTEGER))
ON CONFLICT (group_name, duty) DO UPDATE SET epoch = excluded.epoch, number = excluded.number,
    instance = excluded.instance, document = excluded.document, unix_ms = excluded.unix_ms
WHERE (report.epoch, report.number) < (excluded.epoch, excluded.number)
