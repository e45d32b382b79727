//! Parts of SQL files that mutants replace.

tenure_core::swaps! { SWAPS
    S2Dedupe "sql/routine/ingest_commit.sql" "x.dedupe_digest = u.digest" => "false";
    S2Dedupe "sql/routine/ingest_commit.sql"
        "FROM looked WHERE old_id IS NULL AND turn = 1" =>
        "FROM looked WHERE turn = 1
            ON CONFLICT (dedupe_digest) DO UPDATE SET request_id = excluded.request_id";
    S2Prune "sql/routine/ingest_commit.sql"
        "x.dedupe_digest = u.digest OFFSET 0 FOR UPDATE" => "x.dedupe_digest = u.digest OFFSET 0";
    S3Fence "sql/routine/ingest_gate.sql"
        "(r.epoch, r.instance) <> (n.epoch, n.instance)" =>
        "r.epoch = n.epoch AND r.instance <> n.instance";
    S3Owner "sql/routine/ingest_gate.sql"
        "(r.epoch, r.instance) <> (n.epoch, n.instance)" => "r.epoch <> n.epoch";
    S3Level "sql/routine/isolation.sql" "<> 'read committed'" => "= 'unknown'";
    S4Token "sql/routine/ingest_gate.sql" "WHEN t.revoked_at IS NOT NULL" => "WHEN false";
    S4Token "sql/routine/ingest_gate.sql" "WHEN t.expires_at <= clock_timestamp()" => "WHEN false";
    S4Decide "sql/routine/token_ended.sql" "WHEN t.revoked_at IS NOT NULL" => "WHEN false";
    S4Decide "sql/routine/token_ended.sql" "WHEN t.expires_at <= clock_timestamp()" => "WHEN false";
    S4Meanwhile "sql/routine/token_revoke.sql"
        "PERFORM FROM tenure.inbox_position WHERE only_row FOR UPDATE;" => "";
    S5Order "sql/inbox/read.sql" "ORDER BY p.position" => "ORDER BY p.position DESC";
    S5Reuse "sql/routine/ingest_commit.sql"
        "SELECT greatest(last, floor), lineage" =>
        "SELECT greatest(coalesce((SELECT max(position) FROM tenure.message_inbox), 0), floor),
            lineage";
    S6Stamp "sql/routine/switchboard_clock.sql"
        "greatest(clock_timestamp(), c.reached)" => "clock_timestamp()";
    S7Unlocked "sql/routine/ingest_commit.sql"
        "FROM tenure.inbox_position WHERE only_row FOR UPDATE" =>
        "FROM tenure.inbox_position WHERE only_row";
    S8Clock "sql/routine/switchboard_clock.sql"
        "greatest(reached, least(v_wall, reached + 2 * v_elapsed))" => "v_wall";
    S9Ahead "sql/routine/switchboard_clock.sql"
        "WHERE last_heartbeat_at > v_ahead OR first_seen_at > v_ahead" => "WHERE false";
    S10Adopt "sql/routine/inbox_jump.sql"
        "greatest((v_second + 1) * 1000000, greatest(p.last, p.floor) + 1000000)" => "p.floor";
    S11Epoch "sql/routine/connector_roll_up.sql" "IF p_epoch < v_old.epoch" => "IF false";
    S11Bound "sql/routine/connector_bound.sql"
        "PERFORM pg_advisory_xact_lock(hashtextextended('tenure.connector_stats_progress', 0));"
        => "";
}
