//! Operations of the lease store.
//!
//! Prepared: `a` and `b` are members of `g`, `c` has expired, `e` ended two days ago, `f` was
//! evicted. `a` holds `d1` (with a checkpoint) and `d2`; `c` still has `d3`; `d4` is free and has a
//! checkpoint. `d1`, `d3` and `d4` have reports. `l` holds `d5` (with a checkpoint), and has
//! expired when a `Late` operation begins.

use std::time::Duration;

use tenure_core::store::{
    Adopt, AuditRange, ClaimRequest, Commit, Evict, OpenSession, Report, Retention,
};
use tenure_core::{
    Code, Document, DutyKey, Epoch, GroupName, Hold, InstanceId, Mark, Nonce, Note, Reason,
    Session, StoreError, StoreResult, Ttl, Version,
};
use tenure_store::postgres::fence;

use super::{Kind, Part, TestedOperation, operations, show};
use crate::server::{Handles, connect};

/// So long that nothing expires during a run.
const TTL: Duration = Duration::from_secs(12 * 3_600);

pub(crate) fn group() -> StoreResult<GroupName> {
    GroupName::new("g")
}

pub(crate) fn duty(id: &str) -> StoreResult<DutyKey> {
    DutyKey::new("g", id)
}

pub(crate) fn reason() -> StoreResult<Reason> {
    Reason::new("test")
}

/// Returns the request of an instance; its nonce is its name, or another one with a number.
pub(crate) fn wish(instance: &str, number: u128) -> StoreResult<OpenSession> {
    let letter = instance.bytes().next().map_or(0, u128::from);
    Ok(OpenSession {
        group: group()?,
        instance: InstanceId::new(instance)?,
        nonce: Nonce::from_entropy(letter << 8 | number),
        ttl: Ttl::new(TTL)?,
        note: Note::default(),
    })
}

pub(crate) fn session(instance: &str) -> StoreResult<Session> {
    Ok(wish(instance, 0)?.session())
}

/// Returns a hold of the first epoch.
pub(crate) fn hold(instance: &str, id: &str) -> StoreResult<Hold> {
    let Session { instance, nonce, .. } = session(instance)?;
    let mark = Mark::first(nonce);
    Ok(Hold { duty: duty(id)?, epoch: Epoch::new(1)?, instance, nonce, mark })
}

fn holds(instance: &str, ids: &[&str]) -> StoreResult<Vec<Hold>> {
    ids.iter().map(|id| hold(instance, id)).collect()
}

pub(crate) fn wants(ids: &[&str]) -> StoreResult<Vec<ClaimRequest>> {
    ids.iter().map(|id| duty(id).map(ClaimRequest::new)).collect()
}

pub(crate) fn commits(instance: &str, of: &[(&str, u64)]) -> StoreResult<Vec<Commit>> {
    let commit = |(id, expected): &(&str, u64)| {
        Ok(Commit {
            hold: hold(instance, id)?,
            expected: Version::new(*expected)?,
            document: Document::new(format!("{instance} {id}"))?,
        })
    };
    of.iter().map(commit).collect()
}

pub(crate) fn reports(instance: &str, ids: &[&str], number: u64) -> StoreResult<Vec<Report>> {
    let report = |id: &&str| {
        let document = Document::new(format!("{id} works"))?;
        Ok(Report { hold: hold(instance, id)?, number, document })
    };
    ids.iter().map(report).collect()
}

async fn open(on: Handles, instance: &str, number: u128) -> StoreResult<impl std::fmt::Debug> {
    on.store.open_session(&wish(instance, number)?).await
}

async fn close(on: Handles, instance: &str) -> StoreResult<impl std::fmt::Debug> {
    on.store.close_session(&session(instance)?, &reason()?).await
}

async fn keep(
    on: Handles,
    instance: &str,
    note: Option<&str>,
    ids: &[&str],
) -> StoreResult<impl std::fmt::Debug> {
    let note = note.map(Note::new).transpose()?;
    on.store.keep_alive(&session(instance)?, note.as_ref(), &holds(instance, ids)?).await
}

/// Keeps alive with a mark of another time: the hold is looked up afterwards.
async fn keep_stale(on: Handles) -> StoreResult<impl std::fmt::Debug> {
    let stale = Hold { mark: Mark(u64::MAX), ..hold("a", "d1")? };
    on.store.keep_alive(&session("a")?, None, &[stale]).await
}

async fn claim(on: Handles, instance: &str, ids: &[&str]) -> StoreResult<impl std::fmt::Debug> {
    on.store.claim(&session(instance)?, &wants(ids)?, &reason()?).await
}

async fn release(on: Handles, instance: &str, ids: &[&str]) -> StoreResult<impl std::fmt::Debug> {
    on.store.release(&session(instance)?, &holds(instance, ids)?, &reason()?).await
}

async fn evict(on: Handles, instance: &str, when: Evict) -> StoreResult<impl std::fmt::Debug> {
    on.store.evict(&group()?, &InstanceId::new(instance)?, when, &reason()?).await
}

async fn commit(
    on: Handles,
    instance: &str,
    of: &[(&str, u64)],
) -> StoreResult<impl std::fmt::Debug> {
    on.store.commit(&session(instance)?, &commits(instance, of)?).await
}

async fn report(on: Handles, instance: &str, ids: &[&str]) -> StoreResult<impl std::fmt::Debug> {
    on.store.report(&session(instance)?, &reports(instance, ids, 2)?).await
}

async fn replace(
    on: Handles,
    group: &str,
    expected: u64,
    text: &str,
) -> StoreResult<impl std::fmt::Debug> {
    let (group, document) = (GroupName::new(group)?, Document::new(text)?);
    on.store.replace_group_document(&group, Version::new(expected)?, &document).await
}

async fn forget(on: Handles, ids: &[&str]) -> StoreResult<impl std::fmt::Debug> {
    let duties = ids.iter().map(|id| duty(id)).collect::<StoreResult<Vec<_>>>()?;
    on.store.forget(&duties, &reason()?).await
}

/// An effect under a hold in a transaction of its own, at the level of the role.
async fn effect(on: Handles, instance: &str, id: &str) -> StoreResult<impl std::fmt::Debug> {
    let lost = |error: String| StoreError::unknown(Code::Lost, error);
    let mut client = connect(&on.url).await.map_err(|error| lost(error.to_string()))?;
    let failed = |error: tokio_postgres::Error| match error.as_db_error() {
        Some(refused) => StoreError::refused(Code::Busy, refused.message()),
        None => lost(error.to_string()),
    };
    let transaction = client.transaction().await.map_err(failed)?;
    fence(&transaction, &hold(instance, id)?).await?;
    let write = "UPDATE tenure.iso_effect SET value = value + 1";
    let written = transaction.execute(write, &[]).await.map_err(failed)?;
    transaction.commit().await.map_err(failed)?;
    Ok(written)
}

async fn load(on: Handles) -> StoreResult<impl std::fmt::Debug> {
    on.store.load(&[duty("d1")?, duty("d2")?]).await
}

operations! { Store;
    "open-new" Change |on| open(on, "n", 0);
    "open-again" Change |on| open(on, "a", 0);
    "open-other" Change |on| open(on, "a", 1);
    "open-expired" Change |on| open(on, "c", 1);
    "open-evicted" Change |on| open(on, "f", 1);
    "open-lapsed" Late |on| open(on, "l", 1);
    "close-a" Change |on| close(on, "a");
    "close-b" Change |on| close(on, "b");
    "close-c" Change |on| close(on, "c");
    "close-lapsing" Change |on| close(on, "l");
    "keep-a" Change |on| keep(on, "a", Some("busy"), &["d1", "d2"]);
    "keep-stale" Steps |on| keep_stale(on);
    "keep-b" Change |on| keep(on, "b", None, &[]);
    "keep-c" Change |on| keep(on, "c", None, &["d3"]);
    "keep-lapsing" Change |on| keep(on, "l", None, &["d5"]);
    "claim-held" Change |on| claim(on, "b", &["d1"]);
    "claim-own" Change |on| claim(on, "a", &["d1"]);
    "claim-expired-a" Change |on| claim(on, "a", &["d3"]);
    "claim-expired-b" Change |on| claim(on, "b", &["d3"]);
    "claim-lapsed" Late |on| claim(on, "b", &["d5"]);
    "claim-free" Change |on| claim(on, "b", &["d4"]);
    "claim-new-a" Change |on| claim(on, "a", &["d9"]);
    "claim-new-b" Change |on| claim(on, "b", &["d9"]);
    "claim-many" Change |on| claim(on, "b", &["d1", "d3", "d4", "d9"]);
    "release-one" Change |on| release(on, "a", &["d1"]);
    "release-many" Change |on| release(on, "a", &["d2", "d1"]);
    "release-lapsing" Change |on| release(on, "l", &["d5"]);
    "evict-a" Change |on| evict(on, "a", Evict::Now);
    "evict-a-later" Change |on| evict(on, "a", Evict::AtTtl);
    "evict-b" Change |on| evict(on, "b", Evict::Now);
    "evict-unknown" Change |on| evict(on, "n", Evict::Now);
    "checkpoint-next" Change |on| commit(on, "a", &[("d1", 1)]);
    "checkpoint-first" Change |on| commit(on, "a", &[("d2", 0)]);
    "checkpoint-many" Change |on| commit(on, "a", &[("d2", 0), ("d1", 1)]);
    "checkpoint-expired" Change |on| commit(on, "c", &[("d3", 1)]);
    "checkpoint-lapsing" Change |on| commit(on, "l", &[("d5", 1)]);
    "result-next" Change |on| report(on, "a", &["d1"]);
    "result-first" Change |on| report(on, "a", &["d2"]);
    "result-many" Change |on| report(on, "a", &["d2", "d1"]);
    "result-expired" Change |on| report(on, "c", &["d3"]);
    "result-lapsing" Change |on| report(on, "l", &["d5"]);
    "document-next" Change |on| replace(on, "g", 1, "two");
    "document-other" Change |on| replace(on, "g", 1, "also two");
    "document-first" Change |on| replace(on, "h", 0, "one");
    "forget-free" Change |on| forget(on, &["d4"]);
    "forget-expired" Change |on| forget(on, &["d3"]);
    "forget-lapsed" Late |on| forget(on, &["d5"]);
    "forget-held" Change |on| forget(on, &["d1", "d4"]);
    "adopt-store" Change |on| async move {
        on.store.adopt(&Adopt { entropy: 5, floor: Epoch::new(9)? }).await
    };
    "retain" Steps |on| async move {
        on.store.retain(Retention { history_slots: 2, audit_kept: 1_000 }).await
    };
    "effect" Effect |on| effect(on, "a", "d1");
    "effect-lapsing" Effect |on| effect(on, "l", "d5");
    "groups" Read |on| async move { on.store.groups().await };
    "members" Read |on| async move { on.store.members(&group()?).await };
    "holders" Read |on| async move { on.store.holders(&group()?).await };
    "load" Read |on| load(on);
    "results" Read |on| async move { on.store.reports(&[duty("d1")?, duty("d2")?]).await };
    "clock" Read |on| async move { on.store.wall_clock().await };
    "history" Read |on| async move { on.store.history(&duty("d1")?).await };
    "document" Read |on| async move { on.store.group_document(&group()?).await };
    "audit-trail" Read |on| async move {
        let entries = on.store.audit(&group()?, AuditRange::first(100)).await?;
        Ok::<_, StoreError>(entries.into_iter().map(|it| (it.kind, it.duty)).collect::<Vec<_>>())
    };
    "retention" Read |on| async move { on.store.retention().await };
}
