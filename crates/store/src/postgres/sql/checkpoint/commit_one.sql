-- Stores one checkpoint, the first of its duty if the expected version is 0. No row: the hold is
-- not valid, or the stored version or epoch does not match.
-- $1 group, $2 instance, $3 nonce, $4 duty, $5 epoch, $6 document, $7 expected version
--
-- FOR KEY SHARE on the hold alone lets keep-alives and other commits pass, but no takeover (R12).
-- Ending a hold locks and changes its row first, so after a wait the row no longer matches.
WITH held AS (
    SELECT h.duty FROM tenure.hold h
    JOIN tenure.session s ON s.group_name = $1 AND s.instance = $2
    WHERE h.group_name = $1 AND h.duty = $4 AND h.epoch = $5 AND h.instance = $2
        AND h.nonce = $3::text::uuid AND h.held
        AND s.nonce = $3::text::uuid AND NOT s.ended AND s.expires_at > clock_timestamp()
    FOR KEY SHARE OF h
), saved AS (
    INSERT INTO tenure.checkpoint AS c
        (group_name, duty, version, epoch, instance, document, written_at)
    SELECT $1, $4, $7 + 1, $5, $2, $6, clock_timestamp() FROM held
    WHERE $7 = 0 OR EXISTS (
        SELECT FROM tenure.checkpoint
        WHERE group_name = $1 AND duty = $4 AND version = $7
    )
    ON CONFLICT (group_name, duty) DO UPDATE SET
        version = excluded.version, epoch = excluded.epoch, instance = excluded.instance,
        document = excluded.document, written_at = excluded.written_at
    WHERE c.version = $7 AND c.epoch <= $5
    RETURNING version, written_at
), kept AS (
    INSERT INTO tenure.history
        (group_name, duty, slot, version, epoch, instance, document, written_at)
    SELECT $1, $4, version % (SELECT history_slots FROM tenure.store WHERE only_row),
        version, $5, $2, $6, written_at
    FROM saved
    ON CONFLICT (group_name, duty, slot) DO UPDATE SET
        version = excluded.version, epoch = excluded.epoch, instance = excluded.instance,
        document = excluded.document, written_at = excluded.written_at
)
SELECT version FROM saved
