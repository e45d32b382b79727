//! Judgement of a store: derives the level from the settings.

use super::table::{Backend, SettingRule, TABLE};
use super::{Fact, Level, Survey};

/// The guarantee of a store, with findings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The lowest level that any setting allows.
    pub level: Level,
    /// One per setting, in the order of the survey; settings that the survey lacks come last.
    pub findings: Vec<Finding>,
}

/// Effect of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its name.
    pub setting: &'static str,
    /// Its value; `None` when it could not be read.
    pub value: Option<String>,
    /// The highest level that it allows.
    pub level: Level,
    /// Whether that is below the best level of this kind of store.
    pub lowers: bool,
    /// Its meaning, in one sentence.
    pub sentence: &'static str,
    /// The recommended change, if it lowers the level or deserves attention for another reason.
    pub change: Option<&'static str>,
}

impl Finding {
    /// Whether it deserves attention.
    pub fn attention(&self) -> bool {
        self.change.is_some()
    }
}

/// Judges a store with the table.
///
/// A value that is unreadable, missing or unknown to the table counts as the weakest one of that
/// setting. A setting outside the table is shown and lowers nothing: the table has every setting
/// that matters.
pub fn judge(survey: &Survey) -> Verdict {
    let backend = Backend::named(survey.backend);
    let best = backend.map_or(Level::BestEffort, |backend| backend.best);
    let judging = Judging { name: survey.backend, best, backend };
    let mut findings: Vec<Finding> = survey.facts.iter().map(|fact| judging.fact(fact)).collect();
    for row in TABLE.iter().filter(|row| row.is_of(survey.backend)) {
        if !findings.iter().any(|finding| finding.setting == row.setting) {
            findings
                .push(judging.unread(row.setting, "it was not read, so it counts as the weakest"));
        }
    }
    let level = findings.iter().map(|finding| finding.level).fold(best, Level::min);
    Verdict { level, findings }
}

struct Judging {
    name: &'static str,
    best: Level,
    backend: Option<&'static Backend>,
}

impl Judging {
    fn rows(&self, setting: &str) -> impl Iterator<Item = &'static SettingRule> {
        TABLE.iter().filter(move |row| row.is_of(self.name) && row.setting == setting)
    }

    fn fact(&self, fact: &Fact) -> Finding {
        let setting = fact.setting;
        let Some(value) = &fact.value else {
            return self.unread(setting, "it cannot be read, so it counts as the weakest");
        };
        let found = self.rows(setting).find(|row| row.pattern.matches(value));
        let (level, sentence, change) = match found {
            Some(row) => (row.level, row.sentence, row.change),
            None if self.rows(setting).next().is_none() => {
                (self.best, "it does not affect the guarantee", None)
            }
            None => {
                let sentence = "Tenure does not know this value, so it counts as the weakest";
                let change = "see the table in docs/reference/guarantees.md";
                (self.weakest(setting), sentence, Some(change))
            }
        };
        let finding = self.finding(setting, level, sentence, change);
        Finding { value: Some(value.clone()), ..finding }
    }

    fn unread(&self, setting: &'static str, sentence: &'static str) -> Finding {
        let change = self.backend.map_or("", |backend| backend.rights);
        self.finding(setting, self.weakest(setting), sentence, Some(change))
    }

    fn weakest(&self, setting: &str) -> Level {
        self.rows(setting).map(|row| row.level).fold(self.best, Level::min)
    }

    fn finding(
        &self,
        setting: &'static str,
        level: Level,
        sentence: &'static str,
        change: Option<&'static str>,
    ) -> Finding {
        let level = level.min(self.best);
        Finding { setting, value: None, level, lowers: level < self.best, sentence, change }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guarantee::BACKENDS;

    /// Returns a survey without any weakness.
    fn good(backend: &'static str) -> Survey {
        let facts: &[(&str, &str)] = match backend {
            "postgres" => &[
                ("recovery", "primary"),
                ("fsync", "on"),
                ("full_page_writes", "on"),
                ("synchronous_commit", "on"),
                ("standbys", "synchronous"),
                ("default_transaction_read_only", "off"),
                ("pooled", "direct"),
                ("idle_in_transaction_session_timeout", "60000"),
                ("server_version", "15"),
                ("tls", "on"),
                ("clock_difference_ms", "-12"),
            ],
            "redis" => &[
                ("appendonly", "yes"),
                ("appendfsync", "always"),
                ("no-appendfsync-on-rewrite", "no"),
                ("maxmemory", "1000000"),
                ("maxmemory-policy", "noeviction"),
                ("role", "master"),
                ("connected_replicas", "0"),
                ("min-replicas-to-write", "0"),
                ("cluster_enabled", "no"),
                ("tls", "on"),
                ("clock_difference_ms", "0"),
            ],
            "sqlite" => &[
                ("journal_mode", "wal"),
                ("synchronous", "full"),
                ("filesystem", "ext4"),
                ("free_bytes", "9000000000"),
                ("file_mode", "0600"),
            ],
            "file" => &[("filesystem", "xfs"), ("lock", "flock"), ("users", "one")],
            "etcd" => &[
                ("members", "3"),
                ("healthy_members", "3 of 3"),
                ("database_bytes", "20480"),
                ("quota_percent", "1"),
                ("alarms", "none"),
                ("uncompacted_revisions", "17"),
                ("auth", "on"),
                ("tls", "on"),
            ],
            _ => &[],
        };
        let mut facts: Vec<Fact> =
            facts.iter().map(|(name, value)| Fact::read(name, *value)).collect();
        if backend != "memory" {
            facts.push(Fact::read("round_trip_ms", "2"));
        }
        Survey { backend, facts, unix_ms: None }
    }

    fn with(backend: &'static str, setting: &str, value: Option<&str>) -> Verdict {
        let mut survey = good(backend);
        for fact in survey.facts.iter_mut().filter(|fact| fact.setting == setting) {
            fact.value = value.map(str::to_owned);
        }
        judge(&survey)
    }

    #[test]
    fn a_good_store_has_the_best_level_of_its_kind() {
        for backend in BACKENDS {
            let verdict = judge(&good(backend.name));
            assert_eq!(verdict.level, backend.best, "{verdict:#?}");
            assert!(verdict.findings.iter().all(|f| !f.attention() && !f.lowers), "{verdict:#?}");
            assert!(verdict.findings.iter().all(|f| f.level == backend.best), "{verdict:#?}");
        }
        let unknown = Survey { backend: "paper", facts: Vec::new(), unix_ms: None };
        assert_eq!(judge(&unknown).level, Level::BestEffort);
    }

    #[test]
    fn the_weakest_setting_decides() {
        let mut survey = good("postgres");
        survey.facts[3].value = Some("off".to_owned());
        assert_eq!(judge(&survey).level, Level::AtLeastOnce);
        survey.facts[1].value = Some("off".to_owned());
        assert_eq!(judge(&survey).level, Level::BestEffort);
    }

    /// Unreadable, unknown and missing values count as the weakest row of that setting.
    #[test]
    fn what_is_not_known_counts_as_the_weakest() {
        for row in TABLE {
            for backend in row.backends {
                let best = Backend::named(backend).unwrap().best;
                let rows = TABLE.iter().filter(|r| r.is_of(backend) && r.setting == row.setting);
                let weakest = rows.map(|row| row.level).fold(best, Level::min);
                let mut without = good(backend);
                without.facts.retain(|fact| fact.setting != row.setting);
                for verdict in [with(backend, row.setting, None), judge(&without)] {
                    assert_eq!(verdict.level, weakest, "{backend} {}", row.setting);
                    let of = |f: &&Finding| f.setting == row.setting;
                    let finding = verdict.findings.iter().find(of).unwrap();
                    assert!(finding.attention() && finding.value.is_none(), "{finding:?}");
                }
                let verdict = with(backend, row.setting, Some("no such value"));
                assert_eq!(verdict.level, weakest, "{backend} {}", row.setting);
            }
        }
        assert_eq!(with("redis", "appendfsync", None).level, Level::BestEffort);
        assert_eq!(with("postgres", "standbys", None).level, Level::AtLeastOnce);
        assert_eq!(with("postgres", "tls", None).level, Level::ExclusiveEffects);
    }

    #[test]
    fn a_setting_that_the_table_lacks_is_shown_and_lowers_nothing() {
        let mut survey = good("redis");
        survey.facts.push(Fact::read("colour", "red"));
        let verdict = judge(&survey);
        assert_eq!(verdict.level, Level::Fenced);
        let finding = verdict.findings.last().unwrap();
        assert_eq!((finding.setting, finding.value.as_deref()), ("colour", Some("red")));
    }

    /// Tests each row that lowers a level with a value that only it matches, so a new row needs a
    /// line here.
    #[test]
    fn each_row_that_lowers_a_level_does() {
        use Level::{AtLeastOnce, BestEffort};
        let lowering = [
            ("postgres", "recovery", "standby", BestEffort),
            ("postgres", "fsync", "off", BestEffort),
            ("postgres", "full_page_writes", "off", BestEffort),
            ("postgres", "synchronous_commit", "remote_write", AtLeastOnce),
            ("postgres", "synchronous_commit", "local", AtLeastOnce),
            ("postgres", "synchronous_commit", "off", AtLeastOnce),
            ("postgres", "standbys", "asynchronous", AtLeastOnce),
            ("postgres", "standbys", "mixed", AtLeastOnce),
            ("postgres", "default_transaction_read_only", "on", BestEffort),
            ("redis", "appendonly", "no", BestEffort),
            ("redis", "appendfsync", "everysec", AtLeastOnce),
            ("redis", "appendfsync", "no", BestEffort),
            ("redis", "no-appendfsync-on-rewrite", "yes", BestEffort),
            ("redis", "maxmemory-policy", "allkeys-lru", BestEffort),
            ("redis", "role", "slave", BestEffort),
            ("redis", "connected_replicas", "1", AtLeastOnce),
            ("redis", "cluster_enabled", "yes", BestEffort),
            ("sqlite", "journal_mode", "memory", BestEffort),
            ("sqlite", "synchronous", "normal", AtLeastOnce),
            ("sqlite", "synchronous", "off", BestEffort),
            ("sqlite", "filesystem", "tmpfs", BestEffort),
            ("sqlite", "filesystem", "nfs", BestEffort),
            ("sqlite", "filesystem", "fuse", BestEffort),
            ("sqlite", "filesystem", "0xdead", BestEffort),
            ("file", "lock", "none", BestEffort),
            ("file", "users", "many", BestEffort),
            ("etcd", "healthy_members", "0", BestEffort),
            ("etcd", "alarms", "nospace,corrupt", BestEffort),
        ];
        let mut seen = Vec::new();
        for (backend, setting, value, level) in lowering {
            let matches = |row: &&SettingRule| {
                row.is_of(backend) && row.setting == setting && row.pattern.matches(value)
            };
            let row = TABLE.iter().find(matches).expect("no row for this value");
            assert_eq!(row.level, level, "{backend} {setting} {value}");
            seen.push(row);
            let verdict = with(backend, setting, Some(value));
            assert_eq!(verdict.level, level, "{backend} {setting} {value}");
            let finding = verdict.findings.iter().find(|f| f.setting == setting).unwrap();
            assert!(finding.lowers && finding.change.is_some(), "{finding:?}");
        }
        for row in TABLE.iter().filter(|row| row.level < Level::ExclusiveEffects) {
            assert!(seen.iter().any(|known| std::ptr::eq(*known, row)), "not tried: {row:?}");
        }
    }

    /// Tests each row that only deserves attention.
    #[test]
    fn attention_lowers_nothing() {
        for (backend, setting, value) in [
            ("postgres", "standbys", "missing"),
            ("postgres", "pooled", "pooled"),
            ("postgres", "idle_in_transaction_session_timeout", "0"),
            ("postgres", "server_version", "11"),
            ("postgres", "tls", "off"),
            ("postgres", "clock_difference_ms", "-5001"),
            ("redis", "clock_difference_ms", "5001"),
            ("redis", "maxmemory", "0"),
            ("redis", "maxmemory-policy", "volatile-ttl, not in force"),
            ("redis", "tls", "off"),
            ("sqlite", "filesystem", "overlay"),
            ("sqlite", "free_bytes", "1000"),
            ("sqlite", "file_mode", "0640"),
            ("sqlite", "file_mode", "0604"),
            ("etcd", "members", "1"),
            ("etcd", "members", "2"),
            ("etcd", "healthy_members", "2 of 3"),
            ("etcd", "quota_percent", "80"),
            ("etcd", "alarms", "nospace"),
            ("etcd", "uncompacted_revisions", "100000"),
            ("etcd", "auth", "off"),
            ("etcd", "tls", "off"),
            ("file", "round_trip_ms", "301"),
        ] {
            let verdict = with(backend, setting, Some(value));
            assert_eq!(Some(verdict.level), Backend::named(backend).map(|backend| backend.best));
            let finding = verdict.findings.iter().find(|f| f.setting == setting).unwrap();
            assert!(finding.attention() && !finding.lowers, "{backend} {setting}: {finding:?}");
        }
    }

    #[test]
    fn what_is_as_good_as_the_best_lowers_nothing() {
        for (backend, setting, value) in [
            ("postgres", "synchronous_commit", "remote_apply"),
            ("postgres", "synchronous_commit", "local, nobody to wait for"),
            ("postgres", "standbys", "none"),
            ("postgres", "tls", "socket"),
            ("redis", "min-replicas-to-write", "1"),
            ("sqlite", "synchronous", "extra"),
            ("etcd", "healthy_members", "3"),
            ("etcd", "members", "5"),
        ] {
            let verdict = with(backend, setting, Some(value));
            let finding = verdict.findings.iter().find(|f| f.setting == setting).unwrap();
            assert!(!finding.attention() && !finding.lowers, "{backend} {setting}: {finding:?}");
        }
    }
}
