//! Target list: keys or members of a set in Redis.

use std::collections::BTreeSet;

use redis::{Cmd, FromRedisValue, Pipeline, RedisError, Value};
use tenure_core::Listing;
use tenure_store::StoreUrl;
use tenure_store::connect::{self, RedisConnection};

use crate::collect::{Collector, Entry};
use crate::error::{TargetsError, bad, too_many};

/// Number of keys that the server visits in one step, during which it serves no other client.
const SCAN_COUNT: usize = 1000;
/// Number of keys per read.
const PAUSE_BATCH_KEYS: usize = 500;
/// Fields that mark a target as paused.
const PAUSED_FIELDS: [&str; 3] = ["isPaused", "IsPaused", "paused"];

/// Server, and the source of the targets.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RedisKeys {
    /// Includes the password, but not the parameters of the list.
    url: String,
    from: KeySource,
    /// A target is omitted while a key with this prefix and its id exists.
    tombstone: Option<String>,
}

#[derive(Clone, PartialEq, Eq)]
enum KeySource {
    /// Keys that match; the rest of the key after the prefix is the id.
    Keys { pattern: String, prefix: String, paused: bool },
    /// Members of a set.
    Set(String),
}

impl RedisKeys {
    /// Parses a URL; also returns its printable form.
    pub(crate) fn parse(url: &str) -> Result<(Self, String), TargetsError> {
        let names = ["pattern", "set", "tombstone", "paused", "prefix"];
        let (url, [pattern, set, tombstone, paused, prefix]) =
            connect::take_parameters(url, names)?;
        if prefix.is_some() {
            return Err(bad("prefix is an option of stores; put the prefix into pattern or set"));
        }
        let place = StoreUrl::parse(&url)?;
        let (from, what) = match (pattern, set) {
            (Some(pattern), None) => {
                let paused = match paused.as_deref() {
                    None | Some("json") => true,
                    Some("no") => false,
                    Some(_) => return Err(bad("paused must be json or no")),
                };
                let prefix = fixed_prefix(&pattern);
                let what = format!("pattern={}", pattern.escape_debug());
                (KeySource::Keys { pattern, prefix, paused }, what)
            }
            (None, Some(_)) if paused.is_some() => {
                return Err(bad("paused requires pattern: a member of a set has no value"));
            }
            (None, Some(set)) => {
                let what = format!("set={}", set.escape_debug());
                (KeySource::Set(set), what)
            }
            _ => return Err(bad("a Redis list URL needs either ?pattern= or ?set=")),
        };
        Ok((Self { url, from, tombstone }, format!("{place}?{what}")))
    }

    pub(crate) async fn read(&self, most: usize) -> Result<Listing, TargetsError> {
        let server = connect::redis(&self.url).await?;
        refuse_cluster(&server).await?;
        let mut ids: Vec<String> = self.ids(&server, most).await?.into_iter().collect();
        if let Some(prefix) = &self.tombstone {
            ids = without_tombstones(&server, prefix, ids).await?;
        }
        let mut list = Collector::new(most);
        for chunk in ids.chunks(PAUSE_BATCH_KEYS) {
            let paused = match &self.from {
                KeySource::Keys { prefix, paused: true, .. } => {
                    paused(&server, prefix, chunk).await?
                }
                _ => vec![false; chunk.len()],
            };
            for (id, paused) in chunk.iter().zip(paused) {
                list.add(&Entry { id, paused, ..Entry::default() })?;
            }
        }
        Ok(list.finish())
    }

    /// Reads all ids step by step. The server may return an id twice, and returns every id that
    /// existed the whole time.
    async fn ids(
        &self,
        server: &RedisConnection,
        most: usize,
    ) -> Result<BTreeSet<String>, TargetsError> {
        let (mut ids, mut cursor) = (BTreeSet::new(), "0".to_owned());
        loop {
            let mut command = match &self.from {
                KeySource::Keys { .. } => redis::cmd("SCAN"),
                KeySource::Set(name) => redis::cmd("SSCAN").arg(name).take(),
            };
            command.arg(&cursor);
            if let KeySource::Keys { pattern, .. } = &self.from {
                command.arg("MATCH").arg(pattern);
            }
            command.arg("COUNT").arg(SCAN_COUNT);
            let (next, found): (String, Vec<Vec<u8>>) = ask(server, &command).await?;
            for name in found {
                ids.insert(self.id(name)?);
                if ids.len() > most {
                    return Err(too_many(ids.len(), most));
                }
            }
            if next == "0" {
                return Ok(ids);
            }
            cursor = next;
        }
    }

    fn id(&self, name: Vec<u8>) -> Result<String, TargetsError> {
        let name = String::from_utf8(name).map_err(|error| {
            let shown = String::from_utf8_lossy(error.as_bytes()).into_owned();
            bad(format!("{shown:?} is not UTF-8"))
        })?;
        match &self.from {
            KeySource::Set(_) => Ok(name),
            KeySource::Keys { prefix, .. } => {
                let id = name.strip_prefix(prefix.as_str()).map(str::to_owned);
                id.ok_or_else(|| bad(format!("the key {name:?} does not begin with {prefix:?}")))
            }
        }
    }
}

/// Common prefix of all matching keys: the pattern up to its first special character.
fn fixed_prefix(pattern: &str) -> String {
    let mut prefix = String::new();
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        match c {
            '*' | '?' | '[' => break,
            // A backslash escapes the next character; at the end it stands for itself.
            '\\' => prefix.push(rest.next().unwrap_or(c)),
            c => prefix.push(c),
        }
    }
    prefix
}

/// Refuses a cluster, because each node knows only its own keys and would return a shorter list.
async fn refuse_cluster(server: &RedisConnection) -> Result<(), TargetsError> {
    let info: String = ask(server, redis::cmd("INFO").arg("cluster")).await?;
    match info.lines().any(|line| line.trim() == "cluster_enabled:1") {
        true => Err(bad("Redis Cluster is not supported: no node lists all keys")),
        false => Ok(()),
    }
}

async fn without_tombstones(
    server: &RedisConnection,
    prefix: &str,
    ids: Vec<String>,
) -> Result<Vec<String>, TargetsError> {
    let mut left = Vec::with_capacity(ids.len());
    for chunk in ids.chunks(PAUSE_BATCH_KEYS) {
        let mut questions = Pipeline::new();
        for id in chunk {
            questions.cmd("EXISTS").arg(format!("{prefix}{id}"));
        }
        let asked = questions.query_async(&mut server.commands()).await;
        let gone: Vec<bool> = asked.map_err(|error| wrong(&error))?;
        if gone.len() != chunk.len() {
            return Err(bad("the server returned an unexpected number of answers"));
        }
        left.extend(chunk.iter().zip(gone).filter(|(_, gone)| !gone).map(|(id, _)| id.clone()));
    }
    Ok(left)
}

/// Returns which targets mark themselves as paused. `MGET` has no value for other types of keys.
async fn paused(
    server: &RedisConnection,
    prefix: &str,
    ids: &[String],
) -> Result<Vec<bool>, TargetsError> {
    let keys: Vec<String> = ids.iter().map(|id| format!("{prefix}{id}")).collect();
    let values: Vec<Option<Vec<u8>>> = ask(server, redis::cmd("MGET").arg(keys)).await?;
    if values.len() != ids.len() {
        return Err(bad("the server returned an unexpected number of values"));
    }
    Ok(values.iter().map(|value| value.as_deref().is_some_and(says_paused)).collect())
}

fn says_paused(value: &[u8]) -> bool {
    let value = serde_json::from_slice::<serde_json::Value>(value).unwrap_or_default();
    PAUSED_FIELDS.iter().any(|name| value.get(name) == Some(&serde_json::Value::Bool(true)))
}

async fn ask<T: FromRedisValue>(
    server: &RedisConnection,
    command: &Cmd,
) -> Result<T, TargetsError> {
    let asked: Result<Value, RedisError> = command.query_async(&mut server.commands()).await;
    let value = asked.map_err(|error| wrong(&error))?;
    T::from_redis_value(value).map_err(|error| bad(format!("an unexpected answer: {error}")))
}

/// Returns the server's message. The driver's own message could contain the URL.
fn wrong(error: &RedisError) -> TargetsError {
    match error.clone().into_server_errors().as_deref() {
        Some([(_, first), ..]) => {
            bad(format!("{} {}", first.code(), first.details().unwrap_or_default()))
        }
        _ => bad("the connection to Redis broke while reading the list"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_begins_where_the_pattern_gets_a_meaning() {
        for (pattern, prefix) in [
            ("session:*", "session:"),
            ("session:[ab]*", "session:"),
            ("s?ssion:*", "s"),
            ("*", ""),
            (r"a\*b:*", "a*b:"),
            (r"a\\*", r"a\"),
            (r"a\", r"a\"),
            ("one", "one"),
        ] {
            assert_eq!(fixed_prefix(pattern), prefix, "{pattern}");
        }
    }

    #[test]
    fn only_a_true_pauses() {
        for (value, paused) in [
            (r#"{"isPaused":true}"#, true),
            (r#"{"IsPaused":true,"x":{}}"#, true),
            (r#"{"paused":true}"#, true),
            (r#"{"paused":false,"isPaused":true}"#, true),
            (r#"{"isPaused":false}"#, false),
            (r#"{"isPaused":"true"}"#, false),
            (r#"{"x":{"isPaused":true}}"#, false),
            (r#"{"isPaused":true"#, false),
            ("true", false),
            ("", false),
        ] {
            assert_eq!(says_paused(value.as_bytes()), paused, "{value}");
        }
    }
}
