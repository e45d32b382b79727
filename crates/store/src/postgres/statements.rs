//! SQL statements by name.

use super::mutants::SWAPS;

crate::statements! {
    /// The store's statements, in its schema.
    pub(super) struct Statements swapped by SWAPS {
        session_open: "sql/session/open.sql",
        session_close: "sql/session/close.sql",
        session_evict: "sql/session/evict.sql",
        session_keep_alive: "sql/session/keep_alive.sql",
        hold_standing: "sql/hold/standing.sql",
        hold_claim: "sql/hold/claim.sql",
        hold_release: "sql/hold/release.sql",
        checkpoint_commit: "sql/checkpoint/commit.sql",
        checkpoint_commit_one: "sql/checkpoint/commit_one.sql",
        checkpoint_commit_refused: "sql/checkpoint/commit_refused.sql",
        checkpoint_load: "sql/checkpoint/load.sql",
        checkpoint_history: "sql/checkpoint/history.sql",
        report_save: "sql/report/save.sql",
        report_newest: "sql/report/newest.sql",
        report_load: "sql/report/load.sql",
        group_names: "sql/group/names.sql",
        group_members: "sql/group/members.sql",
        group_holders: "sql/group/holders.sql",
        group_document: "sql/group/document.sql",
        group_replace_document: "sql/group/replace_document.sql",
        audit_read: "sql/audit/read.sql",
        audit_trim: "sql/audit/trim.sql",
        survey_settings: "sql/survey/settings.sql",
        survey_own: "sql/survey/own.sql",
        survey_standbys: "sql/survey/standbys.sql",
        duty_forget: "sql/duty/forget.sql",
        store_adopt: "sql/store/adopt.sql",
        store_retain: "sql/store/retain.sql",
        store_retention: "sql/store/retention.sql",
        store_wall_clock: "sql/store/wall_clock.sql",
    }
}
