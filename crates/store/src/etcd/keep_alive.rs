//! Keep-alives: extend a session's lease and check the session at the same time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::store::{HoldFate, KeptAlive};
use tenure_core::{Clock, Hold, LocalInstant, Mark, Mutant, Note, Session, StoreResult};
use tenure_etcd::{Client, KeepAlive, KeyValue};
use tokio::time::{sleep, timeout};

use super::call::EtcdCall;
use super::cluster::{KEEP_ALIVE_TIMEOUT, RETRY_PAUSE, TxnFailure};
use super::error;
use super::error::RequestError;
use super::key::FenceRecord;
use super::read::{found, get};
use crate::{BootClock, fates_by_mark};

/// Maximum number of streams kept open; further sessions open one per keep-alive.
const MAX_OPEN_STREAMS: usize = 256;

/// Maximum age of a snapshot before the session is read again. This detects that the cluster has
/// grown, and renews the record of the session's nonce.
const MAX_SNAPSHOT_AGE: Duration = Duration::from_secs(60);

/// Open streams by lease. A stream is taken out while in use: an answer whose caller stopped
/// waiting must not be taken for the answer to a later request.
#[derive(Default)]
pub(super) struct KeepAliveStreams {
    streams: Mutex<BTreeMap<i64, KeepAliveStream>>,
    /// The cluster has or had more than one member.
    many: AtomicBool,
}

struct KeepAliveStream {
    stream: KeepAlive,
    /// Last snapshot of the session; it is valid while the server stays at this revision.
    seen: Option<SessionSnapshot>,
}

/// The mark of a session at a revision of a single-member cluster. Until that server writes
/// something, no hold of the session can have been lost.
///
/// This is exact only for a single member: with several, the one that answers may be behind. So
/// after every write the member list is read again. A joining member writes nothing, but cannot
/// revoke a hold without a write either, and the leader sees that write. A server that was alone
/// and has been deposed soon after others joined is detected after [`MAX_SNAPSHOT_AGE`].
#[derive(Clone, Copy, PartialEq, Eq)]
struct SessionSnapshot {
    server: u64,
    revision: i64,
    mark: Mark,
    at: LocalInstant,
}

/// The answer to a keep-alive.
///
/// A keep-alive needs no majority: a member that believes to be the leader extends the lease in its
/// own memory. A member that was frozen or cut off does so even if the others have elected a new
/// leader, under which the lease ends earlier. But it answers with its old term, and so does a
/// follower that forwards to it. So an answer counts only if its term is not older than that of a
/// read made in the same call. The read sees every leader elected before the call; a leader elected
/// later extends every lease itself.
struct LeaseExtension {
    alive: bool,
    /// Term of the answering member, from before it extended the lease or forwarded the request.
    term: u64,
    /// The answering server and its revision; `None` for a new stream.
    at: Option<(u64, i64)>,
    seen: Option<SessionSnapshot>,
}

impl KeepAliveStreams {
    fn streams(&self) -> MutexGuard<'_, BTreeMap<i64, KeepAliveStream>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, lease: i64, keeper: KeepAliveStream) {
        let mut streams = self.streams();
        if streams.len() < MAX_OPEN_STREAMS || streams.contains_key(&lease) {
            streams.insert(lease, keeper);
        }
    }

    fn take(&self, lease: i64) -> Option<KeepAliveStream> {
        self.streams().remove(&lease)
    }

    pub(super) fn forget(&self, lease: i64) {
        drop(self.take(lease));
    }

    fn is_many(&self) -> bool {
        self.many.load(Ordering::Relaxed)
    }

    fn are_many(&self) {
        self.many.store(true, Ordering::Relaxed);
    }

    /// Whether the stream's answer may suffice without reading the session.
    fn may_suffice(&self, lease: i64) -> bool {
        !self.is_many() && self.streams().contains_key(&lease)
    }

    fn saw(&self, lease: i64, seen: Option<SessionSnapshot>) {
        if let Some(keeper) = self.streams().get_mut(&lease) {
            keeper.seen = seen;
        }
    }
}

/// Returns the mark of a session: the version of its key, which each release increments.
pub(super) fn mark(session: &Session, found: &KeyValue) -> Mark {
    Mark(Mark::first(session.nonce).0.wrapping_add(found.version as u64))
}

impl EtcdCall<'_> {
    /// Extends the lease through its open stream, or else through a new one.
    async fn lease_keep(&self, lease: i64) -> StoreResult<LeaseExtension> {
        if let Some(mut keeper) = self.keepers.take(lease) {
            // An error of the stream does not mean that the lease has ended.
            if let Ok(Ok(answer)) = timeout(KEEP_ALIVE_TIMEOUT, keeper.stream.extend()).await {
                let (alive, term, seen) = (answer.ttl > 0, answer.term(), keeper.seen);
                let at = answer.header.as_ref().map(|header| (header.member_id, header.revision));
                if alive {
                    self.keepers.put(lease, keeper);
                }
                return Ok(LeaseExtension { alive, term, at, seen });
            }
        }
        let sent = |client: Client| async move { client.lease_keep_alive(lease).await };
        let (alive, term) = match self.control.repeat(KEEP_ALIVE_TIMEOUT, sent).await {
            Ok((stream, answer)) => {
                self.keepers.put(lease, KeepAliveStream { stream, seen: None });
                (true, answer.term())
            }
            Err(RequestError::LeaseGone) => (false, 0),
            Err(trouble) => return Err(trouble.into_error()),
        };
        Ok(LeaseExtension { alive, term, at: None, seen: None })
    }

    /// Returns whether the lease was extended, once the session has been read. Repeats a keep-alive
    /// that a deposed leader answered.
    async fn lease_kept(&self, lease: i64, mut extended: LeaseExtension) -> StoreResult<bool> {
        while extended.alive && extended.term < self.control.term().max(self.cluster.term()) {
            self.keepers.forget(lease);
            sleep(RETRY_PAUSE).await;
            extended = self.lease_keep(lease).await?;
        }
        Ok(extended.alive)
    }

    /// Whether the cluster has one member. Once it had more, the server is not queried again.
    async fn is_alone(&self) -> bool {
        if self.keepers.is_many() {
            return false;
        }
        let listing = |client: Client| async move { client.member_list().await };
        match self.control.attempt(KEEP_ALIVE_TIMEOUT, listing).await {
            Ok(listed) if listed.members.len() == 1 => true,
            Ok(_) => {
                self.keepers.are_many();
                false
            }
            Err(_) => false,
        }
    }

    /// Returns the session's key unless the session has ended or was evicted; replaces its note.
    async fn session_look(
        &self,
        session: &Session,
        note: Option<&Note>,
    ) -> StoreResult<Option<KeyValue>> {
        if let Some(note) = note {
            let txn = self.note_txn(session, note.as_str());
            let done = match self.guarded(txn).await {
                Err(TxnFailure::LeaseGone) => return Ok(None),
                done => done.map_err(TxnFailure::into_error)?,
            };
            let mut written = done.response.responses;
            let (live, spent) = (written.pop().map(found), written.pop().map(found));
            let live = live.and_then(|mut live| live.pop());
            if live.is_some() {
                self.spend_again(session, spent.unwrap_or_default().first()).await;
            }
            return Ok(live);
        }
        let name = self.keys.session(&session.group, &session.instance);
        let spent = self.keys.spent(&session.group, session.nonce);
        let [mut live, spent] = self.control.read_quick([get(&name), get(&spent)]).await?;
        // The key of an evicted session is attached to another lease.
        let (nonce, lease) = (session.nonce.to_string(), self.keys.lease(session));
        let is_it = |live: &KeyValue| {
            (live.value == nonce.as_bytes() || Mutant::R3Name.is_on())
                && (live.lease == lease || Mutant::R22Evict.is_on())
        };
        let live = live.pop().filter(is_it);
        if live.is_some() {
            self.spend_again(session, spent.first()).await;
        }
        Ok(live)
    }

    /// Keeps a session alive if its lease was fully extended and its key is attached to that lease.
    pub(super) async fn session_keep_alive(
        &self,
        session: &Session,
        note: Option<&Note>,
        holds: &[Hold],
    ) -> StoreResult<KeptAlive> {
        self.saw_holds(holds.iter());
        let lease = self.keys.lease(session);
        let comparing = async { Hold::common_mark(holds, session) };
        // Extending a lease is a change, though it ends by itself.
        self.changes.sends();
        if note.is_none() && self.keepers.may_suffice(lease) {
            let (extended, common) = tokio::join!(self.lease_keep(lease), comparing);
            let extended = extended.inspect_err(|_| self.changes.takes_back())?;
            if let (true, Some(seen), Some((server, revision))) =
                (extended.alive, extended.seen, extended.at)
                && (seen.server, seen.revision) == (server, revision)
                && BootClock.now().since(seen.at) < MAX_SNAPSHOT_AGE
            {
                return self.kept(session, holds, common, seen.mark).await;
            }
            // This read follows the server's answer with its revision. So the result is not older,
            // and if the server stays at that revision, not newer either.
            let (live, alone) = tokio::join!(self.session_look(session, None), self.is_alone());
            let (server, live) = (extended.at, live?);
            let alive = live.is_some() && self.lease_kept(lease, extended).await?;
            let live = live.filter(|_| alive);
            let at = BootClock.now();
            let seen =
                live.as_ref().zip(server).filter(|_| alone).map(|(live, (server, revision))| {
                    let mark = mark(session, live);
                    SessionSnapshot { server, revision, mark, at }
                });
            self.keepers.saw(lease, seen);
            return self.agreed(session, holds, common, live).await;
        }
        let looking = self.session_look(session, note);
        let (extended, live, common) = tokio::join!(self.lease_keep(lease), looking, comparing);
        if extended.is_err() {
            self.changes.takes_back();
        }
        let (live, extended) = (live?, extended?);
        let alive = live.is_some() && self.lease_kept(lease, extended).await?;
        self.agreed(session, holds, common, live.filter(|_| alive)).await
    }

    /// Builds the answer. `live` is the session's key if it is attached to its extended lease.
    async fn agreed(
        &self,
        session: &Session,
        holds: &[Hold],
        common: Option<Mark>,
        live: Option<KeyValue>,
    ) -> StoreResult<KeptAlive> {
        let Some(live) = live else {
            self.keepers.forget(self.keys.lease(session));
            return Ok(match Mutant::R9Revive.is_on() {
                true => KeptAlive::Kept { mark: Mark(0), holds: vec![HoldFate::Kept; holds.len()] },
                false => KeptAlive::Ended,
            });
        };
        self.kept(session, holds, common, mark(session, &live)).await
    }

    /// Returns the fates of the holds of a live session.
    async fn kept(
        &self,
        session: &Session,
        holds: &[Hold],
        common: Option<Mark>,
        mark: Mark,
    ) -> StoreResult<KeptAlive> {
        let (mut fates, unsure) = fates_by_mark(session, holds, common, mark);
        if !unsure.is_empty() {
            let first = unsure[0];
            let asked = |at| if Mutant::R8Whole.is_on() { first } else { at };
            let names: Vec<String> =
                unsure.iter().map(|at| self.keys.fence(&holds[asked(*at)].duty)).collect();
            let found = self.cluster.read_all(&names).await?;
            for (at, found) in unsure.into_iter().zip(found) {
                let stands = FenceRecord::of(&holds[asked(at)]).text();
                if found.is_some_and(|found| found.value == stands.as_bytes()) {
                    *fates
                        .get_mut(at)
                        .ok_or_else(|| error::unexpected("hold number out of range"))? =
                        HoldFate::Kept;
                }
            }
        }
        Ok(KeptAlive::Kept { mark, holds: fates })
    }
}
