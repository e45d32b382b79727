//! Fences: the newest hold of each duty, by the source of the token that it came with.

use std::collections::BTreeMap;

use rusqlite::types::Type;
use rusqlite::{Connection, Error, Row};
use sha2::{Digest, Sha256};
use tenure_core::Epoch;

use super::super::{
    BadFence, Decision, Fence, KnownFence, MAX_FENCES_PER_SOURCE, Scope, Standing, of_cursor,
};
use super::{all, count_of, execute, first, token};

/// How far an epoch may be above the Unix microseconds of now.
const AHEAD: i64 = 24 * 3_600 * 1_000_000;
const COLUMNS: &str = "duty, source_channel, source_provider, source_endpoint_identity, epoch,
    instance, updated_at";

/// Why a submission is not let in.
pub(super) enum Closed {
    Fenced(Option<Standing>),
    Bad(BadFence),
}

/// A duty at the source of a token, or at every source.
type Key = (Option<Scope>, String);

/// What counts for the fences of a group.
#[derive(Default)]
pub(super) struct Gates {
    sources: BTreeMap<String, Option<Scope>>,
    newest: BTreeMap<Key, Newest>,
    last: i64,
}

/// The hold that counts for a key.
struct Newest {
    standing: Standing,
    /// It came with this group, and is to be remembered.
    is_new: bool,
    /// It was seen for every source, and whoever asks has a token.
    is_of_all: bool,
    is_full: bool,
}

impl Gates {
    /// Remembers the newest hold of every duty that is named. At the same epoch the one that was
    /// known stays, or else the first one.
    pub(super) fn raise<'a>(
        db: &Connection,
        fences: impl Iterator<Item = (Option<&'a str>, &'a Fence)>,
        now: i64,
    ) -> rusqlite::Result<Self> {
        let mut gates = Self { last: now.saturating_add(AHEAD), ..Self::default() };
        for (token_id, fence) in fences {
            if let Some(token_id) = token_id
                && !gates.sources.contains_key(token_id)
            {
                gates.sources.insert(token_id.to_owned(), token::scope(db, token_id)?);
            }
            if fence.epoch.as_i64() > gates.last {
                continue;
            }
            let key = gates.key(token_id, fence);
            if !gates.newest.contains_key(&key)
                && let Some(known) = known(db, &key)?
            {
                gates.newest.insert(key.clone(), known);
            }
            let standing = Standing {
                duty: key.1.clone(),
                epoch: fence.epoch,
                instance: fence.instance.as_str().to_owned(),
                updated_at: now,
            };
            let known = gates.newest.get(&key);
            if known.is_none_or(|known| known.standing.epoch < fence.epoch) {
                let new = Newest { standing, is_new: true, is_of_all: false, is_full: false };
                gates.newest.insert(key, new);
            }
        }
        for ((source, _), newest) in gates.newest.iter_mut().filter(|(_, it)| it.is_new) {
            newest.is_full = !remember(db, source.as_ref(), &newest.standing)?;
        }
        Ok(gates)
    }

    fn key(&self, token_id: Option<&str>, fence: &Fence) -> Key {
        let source = token_id.and_then(|token_id| self.sources.get(token_id).cloned().flatten());
        (source, fence.duty.to_string())
    }

    /// Why a fence does not hold; `None` if it does.
    pub(super) fn closed(&self, token_id: Option<&str>, fence: Option<&Fence>) -> Option<Closed> {
        let fence = fence?;
        if fence.epoch.as_i64() > self.last {
            return Some(Closed::Bad(BadFence::EpochAhead));
        }
        let newest = self.newest.get(&self.key(token_id, fence))?;
        let Standing { epoch, instance, .. } = &newest.standing;
        match (fence.epoch, fence.instance.as_str()) == (*epoch, instance) {
            _ if newest.is_full => Some(Closed::Bad(BadFence::TooMany)),
            true => None,
            false if newest.is_of_all => Some(Closed::Fenced(None)),
            false => Some(Closed::Fenced(Some(newest.standing.clone()))),
        }
    }
}

/// A digest that keeps the three names apart; nothing for every source.
fn digest(source: Option<&Scope>) -> Vec<u8> {
    let Some(Scope { channel, provider, endpoint_identity }) = source else { return Vec::new() };
    let text =
        format!("{} {channel} {} {provider} {endpoint_identity}", channel.len(), provider.len());
    Sha256::digest(text).to_vec()
}

/// The newest hold that was seen of a duty, at its source or at all.
fn known(db: &Connection, (source, duty): &Key) -> rusqlite::Result<Option<Newest>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM ingest_fence WHERE duty = ?1 AND source IN (?2, x'')
        ORDER BY epoch DESC, source DESC LIMIT 1"
    );
    let found = first(db, &sql, (duty, digest(source.as_ref())), known_fence)?;
    Ok(found.map(|found| Newest {
        is_of_all: source.is_some() && found.source.is_none(),
        standing: found.newest,
        is_new: false,
        is_full: false,
    }))
}

/// Whether there was room for it.
fn remember(db: &Connection, source: Option<&Scope>, newest: &Standing) -> rusqlite::Result<bool> {
    let digest = digest(source);
    let raise = "UPDATE ingest_fence SET epoch = ?3, instance = ?4, updated_at = ?5
        WHERE duty = ?1 AND source = ?2";
    let Standing { duty, epoch, instance, updated_at } = newest;
    if execute(db, raise, (duty, &digest, epoch.as_i64(), instance, updated_at))? > 0 {
        return Ok(true);
    }
    let add = "INSERT INTO ingest_fence (duty, source, epoch, instance, updated_at,
            source_channel, source_provider, source_endpoint_identity)
        SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8
        WHERE ?2 = x'' OR ?9 > (SELECT count(*) FROM ingest_fence WHERE source = ?2)";
    let name = |of: fn(&Scope) -> &String| source.map_or("", |source| of(source));
    let row = (
        duty,
        &digest,
        epoch.as_i64(),
        instance,
        updated_at,
        name(|source| &source.channel),
        name(|source| &source.provider),
        name(|source| &source.endpoint_identity),
        MAX_FENCES_PER_SOURCE,
    );
    Ok(execute(db, add, row)? > 0)
}

fn known_fence(row: &Row<'_>) -> rusqlite::Result<KnownFence> {
    let epoch = Epoch::from_i64(row.get(4)?)
        .map_err(|error| Error::FromSqlConversionFailure(4, Type::Integer, error.into()))?;
    let newest =
        Standing { duty: row.get(0)?, epoch, instance: row.get(5)?, updated_at: row.get(6)? };
    Ok(KnownFence::new([row.get(1)?, row.get(2)?, row.get(3)?], newest))
}

pub(super) fn list(
    db: &Connection,
    of: Option<&Scope>,
    after: &str,
    limit: usize,
) -> rusqlite::Result<Vec<KnownFence>> {
    let order = "duty, source_channel, source_provider, source_endpoint_identity";
    let sql = format!(
        "SELECT {COLUMNS} FROM ingest_fence WHERE ({order}) > (?1, ?2, ?3, ?4)
            AND (?6 IS NULL OR source = ?6) ORDER BY {order} LIMIT ?5"
    );
    let [duty, channel, provider, endpoint] = of_cursor(after);
    let of = of.map(|source| digest(Some(source)));
    all(db, &sql, (duty, channel, provider, endpoint, count_of(limit), of), known_fence)
}

pub(super) fn reset(
    db: &Connection,
    duty: &str,
    source: Option<&Scope>,
    Decision { by, reason, .. }: &Decision,
    now: i64,
) -> rusqlite::Result<Vec<KnownFence>> {
    let sql = format!("SELECT {COLUMNS} FROM ingest_fence WHERE duty = ?1 ORDER BY source");
    let mut gone = all(db, &sql, [duty], known_fence)?;
    gone.retain(|it| source.is_none() || it.source.as_ref() == source);
    for KnownFence { source, newest } in &gone {
        let forget = "DELETE FROM ingest_fence WHERE duty = ?1 AND source = ?2";
        execute(db, forget, (duty, digest(source.as_ref())))?;
        let metadata = serde_json::json!({
            "epoch": newest.epoch.get(),
            "instance": newest.instance,
            "endpoint_identity": source.as_ref().map(|source| &source.endpoint_identity),
        });
        let entry = token::Entry { token_id: duty, action: "fence_reset", by, reason, metadata };
        token::record(db, &entry, now)?;
    }
    Ok(gone)
}
