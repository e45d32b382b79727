//! Our statements by name.

use tenure_store::beside::postgres::in_schema;

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
    inbox_prune: "SELECT tenure.inbox_prune($1)",
    dedupe_prune: include_str!("sql/dedupe/prune.sql"),
    fence_list: include_str!("sql/fence/list.sql"),
    fence_reset: "SELECT * FROM tenure.fence_reset($1, $2, $3)",
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
    token_revoke: include_str!("sql/token/revoke.sql"),
    token_usage: include_str!("sql/token/usage.sql"),
    token_audit: include_str!("sql/token/audit.sql"),
    usage_add: "SELECT tenure.usage_add($1, $2, $3, $4, $5, $6)::text",
    address_prune: include_str!("sql/address/prune.sql"),
    takes_writes: "SELECT NOT current_setting('transaction_read_only')::boolean \
        FROM tenure.inbox_position WHERE only_row",
}
