//! Facts about the server.

use std::collections::BTreeMap;

use tenure_core::guarantee::{Fact, Survey};
use tenure_core::{Code, StoreError, StoreResult};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Postgres;
use super::connect::Parameter;
use super::rows::column;

/// Settings that are shown as they are.
const SETTINGS: [&str; 4] = [
    "fsync",
    "full_page_writes",
    "default_transaction_read_only",
    "idle_in_transaction_session_timeout",
];
const COMMIT_SETTING: &str = "synchronous_commit";
const STANDBY_NAMES_SETTING: &str = "synchronous_standby_names";
const VERSION_SETTING: &str = "server_version_num";

impl Postgres {
    pub(super) async fn store_survey(&self) -> StoreResult<Survey> {
        let asked: Vec<&str> = SETTINGS
            .into_iter()
            .chain([COMMIT_SETTING, STANDBY_NAMES_SETTING, VERSION_SETTING])
            .collect();
        let asked = [(&asked as _, Type::TEXT_ARRAY)];
        let settings = self.look(&self.statements.survey_settings, &asked).await?;
        let own = self.look(&self.statements.survey_own, &[]).await?;
        let standbys = self.look(&self.statements.survey_standbys, &[]).await?;

        let pair = |row: &Row| Ok((column(row, 0)?, column(row, 1)?));
        let settings: StoreResult<BTreeMap<String, String>> =
            settings.iter().flatten().map(pair).collect();
        let settings = settings?;
        let setting = |name: &str| settings.get(name).cloned();
        let fact = |setting, value| Fact { setting, value };
        let own = own.as_ref().and_then(|rows| rows.first()).map(ServerInfo::read).transpose()?;
        let states = standbys.map(|rows| rows.iter().map(|row| column(row, 0)).collect());
        let states: Option<Vec<Option<String>>> = states.transpose()?;
        let names = setting(STANDBY_NAMES_SETTING);

        let mut facts = vec![fact("recovery", own.as_ref().map(ServerInfo::recovery))];
        facts.extend(SETTINGS[..2].iter().map(|name| fact(name, setting(name))));
        facts.push(fact(COMMIT_SETTING, commit_mode(setting(COMMIT_SETTING), names.as_deref())));
        facts.push(fact(
            "standbys",
            states.and_then(|states| standbys_kind(&states, names?.trim())),
        ));
        facts.extend(SETTINGS[2..].iter().map(|name| fact(name, setting(name))));
        facts.push(Fact::read("pooled", if self.data.is_direct() { "direct" } else { "pooled" }));
        facts.push(fact(
            "server_version",
            setting(VERSION_SETTING).and_then(|number| major(&number)),
        ));
        facts.push(fact("tls", own.as_ref().and_then(ServerInfo::tls)));
        Ok(Survey { backend: "postgres", facts, unix_ms: own.map(|own| own.unix_ms) })
    }

    /// Returns the rows, or `None` when the server does not let us see them.
    async fn look(&self, sql: &str, parameters: &[Parameter<'_>]) -> StoreResult<Option<Vec<Row>>> {
        match self.query(sql, parameters).await {
            Ok(rows) => Ok(Some(rows)),
            // A missing right, or a view that this server does not have.
            Err(StoreError::Refused(problem))
                if matches!(problem.code, Code::Denied | Code::NeedsMigration | Code::Failed) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// The server and our connection to it.
struct ServerInfo {
    in_recovery: bool,
    unix_ms: u64,
    by_socket: bool,
    encrypted: Option<bool>,
}

impl ServerInfo {
    fn read(row: &Row) -> StoreResult<Self> {
        Ok(Self {
            in_recovery: column(row, 0)?,
            unix_ms: u64::try_from(column::<i64>(row, 1)?).unwrap_or(0),
            by_socket: column(row, 2)?,
            encrypted: column(row, 3)?,
        })
    }

    fn recovery(&self) -> String {
        if self.in_recovery { "standby" } else { "primary" }.to_owned()
    }

    fn tls(&self) -> Option<String> {
        let word = match (self.by_socket, self.encrypted?) {
            (_, true) => "on",
            (true, false) => "socket",
            (false, false) => "off",
        };
        Some(word.to_owned())
    }
}

/// Returns the mode. Without named standbys, all but `off` wait for the local disk, like `on`.
fn commit_mode(mode: Option<String>, names: Option<&str>) -> Option<String> {
    let mode = mode?;
    let waits_for_standbys = matches!(mode.as_str(), "local" | "remote_write");
    match names {
        Some("") if waits_for_standbys => Some(format!("{mode}, nobody to wait for")),
        _ => Some(mode),
    }
}

/// Classifies standbys by whether a promoted one has every acknowledged commit. `None` when a state
/// is hidden from us.
fn standbys_kind(states: &[Option<String>], names: &str) -> Option<String> {
    let states: Option<Vec<&str>> = states.iter().map(Option::as_deref).collect();
    let states = states?;
    let count = |state| states.iter().filter(|given| **given == state).count();
    let (all, sync, quorum) = (states.len(), count("sync"), count("quorum"));
    let kind = match (all, sync + quorum) {
        (0, _) if names.is_empty() => "none",
        (0, _) => "missing",
        (_, 0) => "asynchronous",
        // With more quorum standbys than answers, it is unknown which of them have answered.
        (all, waited_for) if all == waited_for && quorum <= quorum_size(names) => "synchronous",
        _ => "mixed",
    };
    Some(kind.to_owned())
}

/// Number of answers that a commit waits for: the number in `ANY 2 (a, b)`.
fn quorum_size(names: &str) -> usize {
    let number = names.split(|c: char| c.is_whitespace() || c == '(').filter(|w| !w.is_empty());
    number.skip(1).find_map(|word| word.parse().ok()).unwrap_or(1)
}

/// Returns the major version, such as `15` for `150014`.
fn major(number: &str) -> Option<String> {
    Some((number.parse::<u32>().ok()? / 10_000).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standbys_are_judged_by_what_a_promoted_one_would_have() {
        for (states, names, kind) in [
            (&[][..], "", "none"),
            (&[], "a", "missing"),
            (&["async"], "", "asynchronous"),
            (&["async", "async"], "a", "asynchronous"),
            (&["sync"], "a", "synchronous"),
            (&["sync", "sync"], "FIRST 2 (a, b)", "synchronous"),
            (&["sync", "potential"], "FIRST 1 (a, b)", "mixed"),
            (&["sync", "async"], "a", "mixed"),
            (&["quorum", "quorum"], "ANY 2 (a, b)", "synchronous"),
            (&["quorum", "quorum"], "any 2(*)", "synchronous"),
            (&["quorum", "quorum"], "ANY 1 (a, b)", "mixed"),
        ] {
            let states: Vec<_> = states.iter().map(|state| Some((*state).to_owned())).collect();
            assert_eq!(standbys_kind(&states, names).as_deref(), Some(kind), "{states:?} {names}");
        }
        assert_eq!(standbys_kind(&[Some("sync".to_owned()), None], "a"), None);
    }

    #[test]
    fn a_mode_that_waits_for_standbys_needs_some() {
        for (mode, names, shown) in [
            ("on", "", "on"),
            ("off", "", "off"),
            ("local", "", "local, nobody to wait for"),
            ("remote_write", "", "remote_write, nobody to wait for"),
            ("local", "a", "local"),
            ("remote_write", "a", "remote_write"),
        ] {
            assert_eq!(commit_mode(Some(mode.to_owned()), Some(names)).as_deref(), Some(shown));
        }
        assert_eq!(commit_mode(Some("local".to_owned()), None).as_deref(), Some("local"));
        assert_eq!(commit_mode(None, Some("")), None);
        assert_eq!(major("150014").as_deref(), Some("15"));
    }
}
