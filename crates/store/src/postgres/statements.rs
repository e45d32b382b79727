//! Our statements by name.

use super::schema::in_schema;

macro_rules! statements {
    ($($name:ident: $sql:expr,)*) => {
        /// Our statements, in the store's schema.
        pub(super) struct Statements { $(pub(super) $name: String,)* }

        impl Statements {
            pub(super) fn new(schema: &str) -> Self {
                Self { $($name: in_schema($sql, schema),)* }
            }

            /// Every statement by name, so that a test can have the server read them all.
            #[cfg(feature = "conformance")]
            pub(super) fn all(&self) -> Vec<(&'static str, &str)> {
                vec![$((stringify!($name), &self.$name),)*]
            }
        }
    };
}

statements! {
    session_open: "SELECT tenure.session_open($1, $2, $3::text::uuid, $4, $5, $6)",
    session_close: "SELECT tenure.session_close($1, $2, $3::text::uuid, $4)",
    session_evict: "SELECT tenure.session_evict($1, $2, $3, $4)",
    keep_alive: include_str!("sql/session/keep_alive.sql"),
    standing: include_str!("sql/hold/standing.sql"),
    claim: "SELECT * FROM tenure.hold_claim($1, $2, $3::text::uuid, $4, $5, $6)",
    release: "SELECT * FROM tenure.hold_release($1, $2, $3::text::uuid, $4, $5, $6)",
    commit: "SELECT * FROM tenure.checkpoint_commit($1, $2, $3::text::uuid, $4, $5, $6, $7)",
    commit_first: include_str!("sql/checkpoint/commit_first.sql"),
    commit_next: include_str!("sql/checkpoint/commit_next.sql"),
    commit_refused: include_str!("sql/checkpoint/commit_refused.sql"),
    load: include_str!("sql/checkpoint/load.sql"),
    history: include_str!("sql/checkpoint/history.sql"),
    groups: include_str!("sql/group/names.sql"),
    members: include_str!("sql/group/members.sql"),
    holders: include_str!("sql/group/holders.sql"),
    document: include_str!("sql/group/document.sql"),
    replace_document: include_str!("sql/group/replace_document.sql"),
    audit: include_str!("sql/audit/read.sql"),
    audit_trim: include_str!("sql/audit/trim.sql"),
    survey_settings: include_str!("sql/survey/settings.sql"),
    survey_own: include_str!("sql/survey/own.sql"),
    survey_standbys: include_str!("sql/survey/standbys.sql"),
    forget: "SELECT * FROM tenure.duty_forget($1, $2, $3)",
    adopt: "SELECT * FROM tenure.store_adopt($1, $2)",
    retain: "SELECT tenure.store_retain($1, $2)::text",
    retention: include_str!("sql/store/retention.sql"),
}
