//! Facts about the server.
//!
//! `INFO` comes first: it shows the settings in effect, and more users may read it. What it lacks
//! comes from `CONFIG GET`, which hosted servers often refuse.

use std::collections::BTreeMap;

use redis::Value;
use tenure_core::guarantee::{Fact, Survey};
use tenure_core::{Code, StoreResult};

use super::Redis;
use super::client::CommandResult;
use super::reply::{RedisReply, text};
use super::script::command;

const INFO_SECTIONS: [&str; 4] = ["persistence", "memory", "replication", "cluster"];
const CONFIG_OPTIONS: [&str; 6] = [
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "maxmemory",
    "maxmemory-policy",
    "min-replicas-to-write",
];

impl Redis {
    pub(super) async fn store_survey(&self) -> StoreResult<Survey> {
        let mut commands = vec![redis::cmd("TIME")];
        commands.extend(INFO_SECTIONS.map(|section| command(&["INFO", section])));
        commands.extend(CONFIG_OPTIONS.map(|option| command(&["CONFIG", "GET", option])));
        let mut answers = Vec::with_capacity(commands.len());
        for answer in self.data.send(&commands).await? {
            answers.push(seen(answer)?);
        }
        let mut known = ServerFacts::default();
        let mut answers = answers.into_iter();
        let time = answers.next().flatten();
        for value in answers.by_ref().take(INFO_SECTIONS.len()).flatten() {
            known.take_section(&text(value)?);
        }
        for (option, value) in CONFIG_OPTIONS.iter().zip(answers) {
            known.take_option(option, value);
        }
        let mut facts = known.facts();
        facts.push(Fact::read("tls", if self.connector.is_encrypted() { "on" } else { "off" }));
        Ok(Survey { backend: "redis", facts, unix_ms: time.and_then(unix_ms) })
    }
}

impl Redis {
    pub(super) async fn store_wall_clock(&self) -> StoreResult<Option<u64>> {
        let answer = self.data.send(&[redis::cmd("TIME")]).await?.pop();
        Ok(answer.map(seen).transpose()?.flatten().and_then(unix_ms))
    }
}

/// Returns the value of an answer; `None` if the server does not know or allow the command. A
/// missing answer is an error.
fn seen(answer: CommandResult) -> StoreResult<Option<Value>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.code(), Code::Denied | Code::Failed) => Ok(None),
        Err(error) => Err(error),
    }
}

fn unix_ms(time: Value) -> Option<u64> {
    let mut reply = RedisReply::of(time).ok()?;
    let (seconds, micros) = (reply.number().ok()?, reply.number().ok()?);
    seconds.checked_mul(1000)?.checked_add(micros / 1000)
}

/// Facts found so far.
#[derive(Default)]
struct ServerFacts {
    info: BTreeMap<String, String>,
    options: BTreeMap<&'static str, String>,
}

impl ServerFacts {
    fn take_section(&mut self, section: &str) {
        let pairs = section.lines().filter_map(|line| line.trim_end().split_once(':'));
        self.info.extend(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    fn take_option(&mut self, option: &'static str, value: Option<Value>) {
        let texts = value.and_then(|value| RedisReply::of(value).ok()?.texts().ok());
        // The name and the value; empty if the server does not have the option.
        if let Some([_, value]) = texts.as_deref() {
            self.options.insert(option, value.clone());
        }
    }

    fn info(&self, name: &str) -> Option<String> {
        self.info.get(name).cloned()
    }

    fn option(&self, name: &str) -> Option<String> {
        self.options.get(name).cloned()
    }

    fn flag(&self, name: &str) -> Option<String> {
        Some(if self.info.get(name)? == "0" { "no" } else { "yes" }.to_owned())
    }

    fn facts(&self) -> Vec<Fact> {
        let maxmemory = self.info("maxmemory").or_else(|| self.option("maxmemory"));
        let policy = self.info("maxmemory_policy").or_else(|| self.option("maxmemory-policy"));
        let policy = policy.map(|policy| in_force(policy, maxmemory.as_deref()));
        let values = [
            ("appendonly", self.flag("aof_enabled").or_else(|| self.option("appendonly"))),
            ("appendfsync", self.option("appendfsync")),
            ("no-appendfsync-on-rewrite", self.option("no-appendfsync-on-rewrite")),
            ("maxmemory", maxmemory),
            ("maxmemory-policy", policy),
            ("role", self.info("role")),
            ("connected_replicas", self.info("connected_slaves")),
            ("min-replicas-to-write", self.option("min-replicas-to-write")),
            ("cluster_enabled", self.flag("cluster_enabled")),
        ];
        values.into_iter().map(|(setting, value)| Fact { setting, value }).collect()
    }
}

/// Marks an eviction policy that has no effect because there is no memory limit.
fn in_force(policy: String, maxmemory: Option<&str>) -> String {
    match maxmemory {
        Some("0") if policy != "noeviction" => format!("{policy}, not in force"),
        _ => policy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::StoreError;

    #[test]
    fn a_policy_without_a_limit_is_not_in_force() {
        let shown = |policy: &str, limit| in_force(policy.to_owned(), limit);
        assert_eq!(shown("allkeys-lru", Some("0")), "allkeys-lru, not in force");
        assert_eq!(shown("allkeys-lru", Some("1000")), "allkeys-lru");
        assert_eq!(shown("allkeys-lru", None), "allkeys-lru");
        assert_eq!(shown("noeviction", Some("0")), "noeviction");
    }

    #[test]
    fn only_what_the_server_says_no_to_is_unreadable() {
        let unknown_command = StoreError::unknown(Code::Failed, "ERR unknown command 'CONFIG'");
        let denied = StoreError::refused(Code::Denied, "NOPERM");
        for error in [unknown_command, denied] {
            assert_eq!(seen(Err(error)), Ok(None));
        }
        for code in [Code::Lost, Code::Busy, Code::Unreachable] {
            assert!(seen(Err(StoreError::unknown(code, "x"))).is_err());
        }
    }

    #[test]
    fn what_info_does_not_show_comes_from_the_options() {
        let mut known = ServerFacts::default();
        known.take_section("# Persistence\r\naof_enabled:1\r\n");
        let bulk = |text: &str| Value::BulkString(text.into());
        let pair = |name, value| Some(Value::Array(vec![bulk(name), bulk(value)]));
        known.take_option("appendonly", pair("appendonly", "no"));
        known.take_option("maxmemory", pair("maxmemory", "7"));
        known.take_option("appendfsync", Some(Value::Array(Vec::new())));
        known.take_option("min-replicas-to-write", None);
        let facts = known.facts();
        let value = |name| facts.iter().find(|fact| fact.setting == name).unwrap().value.as_deref();
        assert_eq!(value("appendonly"), Some("yes"), "what is counts, not what is written down");
        assert_eq!(value("maxmemory"), Some("7"));
        assert_eq!((value("appendfsync"), value("min-replicas-to-write")), (None, None));
        assert_eq!((value("role"), value("cluster_enabled")), (None, None));
    }
}
