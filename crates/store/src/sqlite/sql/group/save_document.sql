-- ?1 group, ?2 version, ?3 document
INSERT INTO group_document (group_name, version, document) VALUES (?1, ?2, ?3)
ON CONFLICT (group_name) DO UPDATE SET version = excluded.version, document = excluded.document
