//! Parts of SQL files that mutants replace.

tenure_core::swaps! { SWAPS
    S2Dedupe "sql/dedupe/add.sql"
        "DO NOTHING" => "DO UPDATE SET request_id = excluded.request_id";
    S4Token "sql/token/end.sql"
        "revoked_at IS NOT NULL, expires_at" => "false, 9223372036854775807";
    S5Order "sql/inbox/read.sql" "ORDER BY position" => "ORDER BY position DESC";
    S5Reuse "sql/inbox/bounds.sql"
        "SELECT last," => "SELECT coalesce((SELECT max(position) FROM message_inbox), 0),";
    S8Clock "sql/clock/move.sql" "max(reached, min(?1, reached + ?2))" => "?1 + 0 * ?2";
    S9Ahead "sql/clock/correct_connectors.sql"
        "WHERE last_heartbeat_at > ?2 OR first_seen_at > ?2" => "WHERE ?1 = ?2";
    S10Adopt "sql/inbox/move_floor.sql" "floor = ?1" => "floor = floor + 0 * ?1";
}
