-- Deletes nonces that were used, or lost their session, more than seven days ago, except those that
-- a session or a held hold still has: reuse would revive it. The plus keeps the holds from being
-- read when no nonce is that old. ?1 group
DELETE FROM spent WHERE group_name = ?1
    AND unix_ms < CAST(unixepoch('subsec') * 1000 AS INTEGER) - 7 * 24 * 60 * 60 * 1000
    AND +nonce NOT IN (
        SELECT nonce FROM session WHERE group_name = ?1
        UNION SELECT nonce FROM hold WHERE group_name = ?1 AND held)
