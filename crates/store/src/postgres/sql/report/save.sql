-- Stores reports under holds of one session. Returns for each, in order, whether its hold is valid.
-- $1 group, $2 instance, $3 nonce, $4 duties, $5 epochs, $6 numbers, $7 documents
--
-- As in commit_one, FOR KEY SHARE on the holds lets keep-alives and commits pass, but no takeover
-- (R12). Ending a hold locks and changes its row first, so after a wait the row no longer matches.
WITH wanted AS (
    SELECT * FROM unnest($4, $5, $6, $7) WITH ORDINALITY AS u(duty, epoch, number, document, item)
    ORDER BY u.duty COLLATE "C"
), held AS (
    SELECT w.duty, w.epoch, w.number, w.document FROM wanted w
    CROSS JOIN LATERAL (
        SELECT FROM tenure.hold x
        WHERE x.group_name = $1 AND x.duty = w.duty AND x.epoch = w.epoch AND x.instance = $2
            AND x.nonce = $3::text::uuid AND x.held FOR KEY SHARE
    ) AS h
    WHERE EXISTS (
        SELECT FROM tenure.session
        WHERE group_name = $1 AND instance = $2 AND nonce = $3::text::uuid
            AND NOT ended AND expires_at > clock_timestamp()
    ) AND NOT EXISTS (
        SELECT FROM tenure.checkpoint x
        WHERE x.group_name = $1 AND x.duty = w.duty AND x.epoch > w.epoch OFFSET 0
    ) AND NOT EXISTS (
        SELECT FROM tenure.report x
        WHERE x.group_name = $1 AND x.duty = w.duty AND x.epoch > w.epoch OFFSET 0
    )
), saved AS (
    INSERT INTO tenure.report AS r
        (group_name, duty, epoch, number, instance, document, written_at)
    SELECT $1, duty, epoch, number, $2, document, clock_timestamp()
    FROM held ORDER BY duty COLLATE "C"
    ON CONFLICT (group_name, duty) DO UPDATE SET
        epoch = excluded.epoch, number = excluded.number, instance = excluded.instance,
        document = excluded.document, written_at = excluded.written_at
    -- An attempt that comes late changes nothing.
    WHERE (r.epoch, r.number) < (excluded.epoch, excluded.number)
)
SELECT h.duty IS NOT NULL FROM wanted w LEFT JOIN held h ON h.duty = w.duty ORDER BY w.item
