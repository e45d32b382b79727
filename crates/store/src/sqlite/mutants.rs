//! Parts of SQL files that mutants replace.

tenure_core::swaps! { SWAPS
    R2Forget "sql/hold/free.sql" "UPDATE hold SET held = 0" => "DELETE FROM hold";
    R3Name "sql/session/keep_alive.sql" "nonce = ?3" => "?3 = ?3";
    R9Revive "sql/session/keep_alive.sql" "expires_ns > ?4" => "?4 = ?4";
    R22Evict "sql/session/keep_alive.sql" "AND NOT evicted" => "";
    R24Audit "sql/audit/record.sql"
        "VALUES (CAST(unixepoch('subsec') * 1000 AS INTEGER), ?1, ?2, ?3, ?4, ?5, ?6)" =>
        "SELECT 0, ?1, ?2, ?3, ?4, ?5, ?6 WHERE false";
}
