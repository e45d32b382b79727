-- $1 group, $2 expected version, $3 document. No row: the version differs.
WITH saved AS (
    INSERT INTO tenure.group_document AS d (group_name, version, document)
    SELECT $1, $2 + 1, $3 WHERE $2 = 0 OR EXISTS (
        SELECT FROM tenure.group_document WHERE group_name = $1
    )
    ON CONFLICT (group_name) DO UPDATE SET version = excluded.version, document = excluded.document
    WHERE d.version = excluded.version - 1
    RETURNING version
)
SELECT version, pg_notify('tenure.changes', $1) FROM saved
