-- ?1 group, ?2 duty, ?3 version, ?4 epoch, ?5 instance, ?6 document, ?7 unix_ms
INSERT INTO history (group_name, duty, slot, version, epoch, instance, document, unix_ms)
VALUES (?1, ?2, ?3 % (SELECT history_slots FROM store), ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (group_name, duty, slot) DO UPDATE SET
    version = excluded.version, epoch = excluded.epoch, instance = excluded.instance,
    document = excluded.document, unix_ms = excluded.unix_ms
