//! Fences: the newest hold of each duty, by the source of its token.
//!
//! Why: docs/decisions/0041-fences-belong-to-a-source.md

use std::collections::BTreeMap;

use async_trait::async_trait;
use rusqlite::Connection;
use serde_json::json;
use sha2::{Digest, Sha256};
use tenure_core::Mutant;

use super::super::fence::parse_fence_cursor;
use super::super::{
    BadFence, Decision, Fences, IngestFence, KnownFence, MAX_FENCES_PER_SOURCE, NewestHold,
    Permitted, SourceScope, SubmissionRejection,
};
use super::row::{self, all, execute, first};
use super::{SqliteStorage, sql, token};
use crate::error::StorageResult;

/// Maximum distance of an epoch above the Unix time in microseconds.
const MAX_EPOCH_AHEAD: i64 = 24 * 3_600 * 1_000_000;

/// Source and duty of a fence; without a source it applies to every one.
type FenceKey = (Option<SourceScope>, String);

/// Newest holds against which the fences of a group are checked.
#[derive(Default)]
pub(super) struct FenceGates {
    sources: BTreeMap<String, Option<SourceScope>>,
    newest: BTreeMap<FenceKey, NewestFence>,
    last: i64,
}

/// Newest hold of a key.
struct NewestFence {
    standing: NewestHold,
    /// It came with this group and must be stored.
    is_new: bool,
    /// It applies to every source, but the submission has a token.
    is_of_all: bool,
    is_full: bool,
}

impl FenceGates {
    /// Stores the newest hold of every named duty. At equal epochs the known hold stays, or else
    /// the first one.
    pub(super) fn raise<'a>(
        db: &Connection,
        fences: impl Iterator<Item = (Option<&'a str>, &'a IngestFence)>,
        now: i64,
    ) -> rusqlite::Result<Self> {
        let mut gates = Self { last: now.saturating_add(MAX_EPOCH_AHEAD), ..Self::default() };
        for (token_id, fence) in fences {
            if let Some(token_id) = token_id
                && !gates.sources.contains_key(token_id)
            {
                let source = first(db, sql!("token/scope"), [token_id])?;
                gates.sources.insert(token_id.to_owned(), source);
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
            let standing = NewestHold {
                duty: key.1.clone(),
                epoch: fence.epoch,
                instance: fence.instance.as_str().to_owned(),
                updated_at: now,
            };
            let known = gates.newest.get(&key);
            if known.is_none_or(|known| known.standing.epoch < fence.epoch) {
                let new = NewestFence { standing, is_new: true, is_of_all: false, is_full: false };
                gates.newest.insert(key, new);
            }
        }
        for ((source, _), newest) in gates.newest.iter_mut().filter(|(_, it)| it.is_new) {
            newest.is_full = !remember(db, source.as_ref(), &newest.standing)?;
        }
        Ok(gates)
    }

    fn key(&self, token_id: Option<&str>, fence: &IngestFence) -> FenceKey {
        let source = token_id.and_then(|token_id| self.sources.get(token_id).cloned().flatten());
        (source, fence.duty.to_string())
    }

    /// Returns the reason to reject a fence, if there is one.
    pub(super) fn closed(
        &self,
        token_id: Option<&str>,
        fence: Option<&IngestFence>,
    ) -> Option<SubmissionRejection> {
        let fence = fence?;
        if fence.epoch.as_i64() > self.last {
            return Some(SubmissionRejection::BadFence(BadFence::EpochAhead));
        }
        let newest = self.newest.get(&self.key(token_id, fence))?;
        let NewestHold { epoch, instance, .. } = &newest.standing;
        let is_newest = match fence.epoch == *epoch {
            true => fence.instance.as_str() == instance || Mutant::S3Owner.is_on(),
            false => Mutant::S3Fence.is_on(),
        };
        match is_newest {
            _ if newest.is_full => Some(SubmissionRejection::BadFence(BadFence::TooMany)),
            true => None,
            false if newest.is_of_all => Some(SubmissionRejection::Fenced(None)),
            false => Some(SubmissionRejection::Fenced(Some(newest.standing.clone()))),
        }
    }
}

/// Returns a digest in which the three names are delimited; empty for every source.
fn digest(source: Option<&SourceScope>) -> Vec<u8> {
    let Some(SourceScope { channel, provider, endpoint_identity }) = source else {
        return Vec::new();
    };
    let text =
        format!("{} {channel} {} {provider} {endpoint_identity}", channel.len(), provider.len());
    Sha256::digest(text).to_vec()
}

/// Reads the newest hold of a duty that applies to a source.
fn known(db: &Connection, (source, duty): &FenceKey) -> rusqlite::Result<Option<NewestFence>> {
    let found: Option<KnownFence> =
        first(db, sql!("fence/newest"), (duty, digest(source.as_ref())))?;
    Ok(found.map(|found| NewestFence {
        is_of_all: source.is_some() && found.source.is_none(),
        standing: found.newest,
        is_new: false,
        is_full: false,
    }))
}

/// Stores the newest hold, unless its source has too many.
fn remember(
    db: &Connection,
    source: Option<&SourceScope>,
    newest: &NewestHold,
) -> rusqlite::Result<bool> {
    let digest = digest(source);
    let NewestHold { duty, epoch, instance, updated_at } = newest;
    let raised = (duty, &digest, epoch.as_i64(), instance, updated_at);
    if execute(db, sql!("fence/raise"), raised)? > 0 {
        return Ok(true);
    }
    let (channel, provider, endpoint) = source.map_or(("", "", ""), |source| {
        (&source.channel, &source.provider, &source.endpoint_identity)
    });
    let (max, epoch) = (MAX_FENCES_PER_SOURCE, epoch.as_i64());
    let row = (duty, &digest, epoch, instance, updated_at, channel, provider, endpoint, max);
    Ok(execute(db, sql!("fence/add"), row)? > 0)
}

#[async_trait]
impl Fences for SqliteStorage {
    async fn fences(
        &self,
        of: Option<&SourceScope>,
        after: &str,
        limit: usize,
    ) -> StorageResult<Vec<KnownFence>> {
        let (of, after) = (of.map(|source| digest(Some(source))), after.to_owned());
        let job = move |db: &Connection, _| {
            let [duty, channel, provider, endpoint] = parse_fence_cursor(&after);
            let values = (duty, channel, provider, endpoint, row::limit(limit), of);
            all(db, sql!("fence/list"), values)
        };
        self.read(job).await
    }

    async fn reset_fence(
        &self,
        duty: &str,
        source: Option<&SourceScope>,
        decision: &Decision,
    ) -> Permitted<Vec<KnownFence>> {
        let (duty, source, decided) = (duty.to_owned(), source.cloned(), decision.clone());
        let job = move |db: &Connection, now| {
            let mut gone: Vec<KnownFence> = all(db, sql!("fence/of_duty"), [&duty])?;
            gone.retain(|it| source.is_none() || it.source == source);
            for KnownFence { source, newest } in &gone {
                execute(db, sql!("fence/forget"), (&duty, digest(source.as_ref())))?;
                let metadata = json!({
                    "epoch": newest.epoch.get(),
                    "instance": newest.instance,
                    "endpoint_identity": source.as_ref().map(|source| &source.endpoint_identity),
                });
                let Decision { by, reason, .. } = &decided;
                token::record(db, (&duty, "fence_reset", by, reason, metadata), now)?;
            }
            Ok(gone)
        };
        self.write_with(decision.token_id.as_deref(), job).await
    }
}
