//! Parts of SQL files that mutants replace.

tenure_core::swaps! { SWAPS
    R2Same "sql/routine/hold_claim.sql"
        "(SELECT floor FROM tenure.store WHERE only_row)) + 1 AS" =>
        "(SELECT floor FROM tenure.store WHERE only_row), 1) AS";
    R2Forget "sql/routine/hold_release.sql"
        "DO UPDATE SET held = false" => "DO UPDATE SET held = false, epoch = 0";
    R2Forget "sql/routine/hold_release.sql" "WHEN h.is_ours AND h.is_new" => "WHEN h.is_new";
    R3Name "sql/session/keep_alive.sql" "nonce = $3::text::uuid" => "$3::text IS NOT NULL";
    R4Early "sql/session/keep_alive.sql"
        "expires_at > clock_timestamp()" => "expires_at > statement_timestamp()";
    R8Whole "sql/hold/standing.sql"
        "x.duty = w.duty AND x.epoch = w.epoch" => "x.duty = ($4)[1] AND x.epoch = ($5)[1]";
    R9Revive "sql/session/keep_alive.sql"
        "NOT ended AND NOT evicted AND expires_at > clock_timestamp()" => "NOT evicted";
    R9Release "sql/routine/hold_release.sql"
        "x.duty = w.duty AND x.epoch = w.epoch" => "x.duty = w.duty";
    R9Report "sql/report/save.sql"
        "AND x.duty = w.duty AND x.epoch = w.epoch" => "AND x.duty = w.duty";
    R12Unlocked "sql/routine/assert_hold.sql" "duty = v_duty FOR SHARE" => "duty = v_duty";
    R14Version "sql/checkpoint/commit_one.sql" "duty = $4 AND version = $7" => "duty = $4";
    R14Version "sql/checkpoint/commit_one.sql" "WHERE c.version = $7 AND" => "WHERE";
    R14Fence "sql/checkpoint/commit_one.sql"
        "AND h.duty = $4 AND h.epoch = $5" => "AND h.duty = $4";
    R14Fence "sql/checkpoint/commit_one.sql" "AND c.epoch <= $5" => "";
    R14Batch "sql/routine/checkpoint_commit.sql"
        "WHERE x.group_name = p_group AND x.duty = w.duty AND x.epoch = w.epoch
                AND x.instance = p_instance AND x.nonce = p_nonce AND x.held OFFSET 0" =>
        "WHERE x.group_name = p_group AND x.duty = w.duty OFFSET 0";
    R14Batch "sql/routine/checkpoint_commit.sql"
        "WHERE v_live AND (w.expected = 0 OR e.is_there)" => "WHERE v_live";
    R14Batch "sql/routine/checkpoint_commit.sql"
        "WHERE c.version = excluded.version - 1 AND c.epoch <= excluded.epoch" => "";
    R22Evict "sql/session/keep_alive.sql" "AND NOT evicted" => "";
    R24Audit "sql/routine/hold_claim.sql"
        "FROM entry ORDER BY" => "FROM entry WHERE false ORDER BY";
    R24Audit "sql/routine/hold_release.sql"
        "FROM ours ORDER BY duty
        )" =>
        "FROM ours WHERE false ORDER BY duty
        )";
    R24Audit "sql/routine/session_open.sql"
        "VALUES (p_group, 'joined', p_instance, 'open');" =>
        "SELECT p_group, 'joined', p_instance, 'open' WHERE false;";
    R24Audit "sql/routine/session_end.sql"
        "FROM freed ORDER BY" => "FROM freed WHERE false ORDER BY";
    R24Audit "sql/routine/session_end.sql"
        "VALUES (p_group, 'left', p_instance, p_reason);" =>
        "SELECT p_group, 'left', p_instance, p_reason WHERE false;";
    R24Audit "sql/routine/session_end.sql"
        "VALUES (p_group, 'evicted', p_instance, p_reason);" =>
        "SELECT p_group, 'evicted', p_instance, p_reason WHERE false;";
}
