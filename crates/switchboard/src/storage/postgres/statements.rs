//! Our statements by name.

use tenure_store::sql::postgres::in_schema;

macro_rules! statements {
    ($($name:ident: $sql:expr,)*) => {
        /// Our statements, in the schema of the tables.
        pub(super) struct Statements { $(pub(super) $name: String,)* }

        impl Statements {
            pub(super) fn new(schema: &str) -> Self {
                Self { $($name: in_schema($sql, schema),)* }
            }
        }
    };
}

statements! {
    ingest_commit: "SELECT * FROM tenure.ingest_commit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, \
        $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)",
    inbox_read: include_str!("sql/inbox/read.sql"),
    inbox_endpoint: "SELECT * FROM tenure.inbox_endpoint($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    inbox_show: include_str!("sql/inbox/show.sql"),
    inbox_last: include_str!("sql/inbox/last.sql"),
    inbox_recognise: include_str!("sql/inbox/recognise.sql"),
    inbox_adopt: "SELECT tenure.inbox_jump($1, 'the store was adopted')",
    inbox_prune: "SELECT tenure.inbox_prune($1)",
    dedupe_prune: include_str!("sql/dedupe/prune.sql"),
    fence_list: include_str!("sql/fence/list.sql"),
    fence_reset: "SELECT * FROM tenure.fence_reset($1, $2, $3, $4, $5, $6, $7)",
    channel_list: include_str!("sql/channel/list.sql"),
    channel_replace: include_str!("sql/channel/replace.sql"),
    letter_post: "SELECT * FROM tenure.letter_post($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, \
        $12, $13, $14)",
    letter_list: include_str!("sql/letter/list.sql"),
    letter_list_state: include_str!("sql/letter/list_state.sql"),
    letter_show: include_str!("sql/letter/show.sql"),
    letter_resolve: include_str!("sql/letter/resolve.sql"),
    letter_count_pending: include_str!("sql/letter/count_pending.sql"),
    letter_prune: include_str!("sql/letter/prune.sql"),
    token_admit: include_str!("sql/token/admit.sql"),
    token_exists: include_str!("sql/token/exists.sql"),
    token_create: include_str!("sql/token/create.sql"),
    token_list: include_str!("sql/token/list.sql"),
    token_revoke: "SELECT * FROM tenure.token_revoke($1, $2, $3)",
    token_usage: include_str!("sql/token/usage.sql"),
    token_audit: include_str!("sql/token/audit.sql"),
    usage_add: "SELECT tenure.usage_add($1, $2, $3, $4, $5, $6)::text",
    address_prune: include_str!("sql/address/prune.sql"),
    connector_beat_apply: include_str!("sql/registry/beat.sql"),
    connector_state: include_str!("sql/registry/state.sql"),
    connector_register: include_str!("sql/registry/register.sql"),
    connector_archive: include_str!("sql/registry/archive.sql"),
    connector_delete: "SELECT * FROM tenure.connector_delete($1, $2, $3, $4, $5, $6)",
    connector_recount: "SELECT * FROM tenure.connector_recount($1, $2, $3, $4, $5, $6)",
    connector_list: include_str!("sql/registry/list.sql"),
    connector_show: include_str!("sql/registry/show.sql"),
    connector_types: include_str!("sql/registry/types.sql"),
    connector_heartbeats: include_str!("sql/registry/heartbeats.sql"),
    connector_hours: include_str!("sql/registry/hours.sql"),
    connector_days: include_str!("sql/registry/days.sql"),
    connector_sums: include_str!("sql/registry/sums.sql"),
    connector_fanout: include_str!("sql/registry/fanout.sql"),
    connector_bound: "SELECT tenure.connector_bound($1)::text",
    connector_roll_up: "SELECT * FROM tenure.connector_roll_up($1, $2)",
    outcome_report: "SELECT * FROM tenure.outcome_report($1, $2, $3, $4, $5, $6, $7)",
    outcome_list: include_str!("sql/registry/outcomes.sql"),
    days_make: "SELECT tenure.connector_days_make($1)::text",
    days_drop: "SELECT tenure.connector_days_drop($1, $2)",
    tidy_beats: include_str!("sql/tidy/beats.sql"),
    tidy_hours: include_str!("sql/tidy/hours.sql"),
    tidy_days: include_str!("sql/tidy/days.sql"),
    tidy_fanout: include_str!("sql/tidy/fanout.sql"),
    tidy_outcomes: include_str!("sql/tidy/outcomes.sql"),
    tidy_instances: include_str!("sql/tidy/instances.sql"),
    replica_announce: include_str!("sql/replica/announce.sql"),
    replica_find: include_str!("sql/replica/find.sql"),
    replica_withdraw: "DELETE FROM tenure.switchboard_replica WHERE replica_id = $1",
    switchboard_tick: "SELECT * FROM tenure.switchboard_tick($1, $2, $3, $4)",
    takes_writes: "SELECT NOT current_setting('transaction_read_only')::boolean \
        FROM tenure.inbox_position WHERE only_row",
}
