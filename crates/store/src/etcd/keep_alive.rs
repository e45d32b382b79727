//! Keeping sessions alive: the lease, and at the same time a look at the session.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::store::{HoldFate, KeptAlive};
use tenure_core::{Clock, Hold, LocalInstant, Mark, Note, Session, StoreResult};
use tenure_etcd::{Client, KeepAlive, KeyValue};
use tokio::time::{sleep, timeout};

use super::call::EtcdCall;
use super::cluster::{KEEP_ALIVE_TIMEOUT, RETRY_PAUSE, TxnFailure};
use super::error;
use super::error::RequestError;
use super::key::FenceRecord;
use super::read::{found, get};
use crate::{BootClock, fates_by_mark};

/// So many streams stay open; whoever comes later opens one for each keep-alive.
const MAX_OPEN_STREAMS: usize = 256;

/// A session is looked at so often at least: a cluster that has grown since is noticed, and what is
/// remembered of the session is renewed on the way.
const MAX_SNAPSHOT_AGE: Duration = Duration::from_secs(60);

/// Open streams by lease. One is taken out while it is used: an answer that nobody has waited for
/// must not be taken for the answer to a later question.
#[derive(Default)]
pub(super) struct KeepAliveStreams {
    streams: Mutex<BTreeMap<i64, KeepAliveStream>>,
    /// The cluster has, or once had, more than one member.
    many: AtomicBool,
}

struct KeepAliveStream {
    stream: KeepAlive,
    /// Last snapshot of the session; it is valid while the server stays at this revision.
    seen: Option<SessionSnapshot>,
}

/// The mark of a session at a revision of a server that is alone: until it has written something,
/// nobody has taken anything from the session.
///
/// This is exact for one member only. Of several, the one that answers may be behind. So whenever
/// anything was written, it is asked again whether it is still alone; and a member that joins
/// writes nothing, but can take nothing away either without a write, which a leader sees. One that
/// was alone, and is the leader of the past soon after others have joined, is found out by
/// [`MAX_SNAPSHOT_AGE`].
#[derive(Clone, Copy, PartialEq, Eq)]
struct SessionSnapshot {
    server: u64,
    revision: i64,
    mark: Mark,
    at: LocalInstant,
}

/// The answer to a keep-alive.
///
/// It is no matter of the majority: a member that takes itself for the leader extends the lease in
/// its own memory. One that was frozen or cut off does so while the others have chosen another,
/// with which the lease ends earlier. But it answers in the term of before, and so does a follower
/// that asks it. So an answer counts only if its term is not older than that of a read made in the
/// same call: the read knows of a leader that was chosen before the call; one that is chosen later
/// extends every lease by itself.
struct LeaseExtension {
    alive: bool,
    /// Term of the member that answered, from before it extended the lease or passed that on.
    term: u64,
    /// The server that answered and the revision that it was at; `None` for a stream just opened.
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

    /// Whether the answer of the stream may be enough.
    fn may_suffice(&self, lease: i64) -> bool {
        !self.is_many() && self.streams().contains_key(&lease)
    }

    fn saw(&self, lease: i64, seen: Option<SessionSnapshot>) {
        if let Some(keeper) = self.streams().get_mut(&lease) {
            keeper.seen = seen;
        }
    }
}

/// The mark of a session: how often its key was written, which each release does.
pub(super) fn mark(session: &Session, found: &KeyValue) -> Mark {
    Mark(Mark::first(session.nonce).0.wrapping_add(found.version as u64))
}

impl EtcdCall<'_> {
    /// Extends the lease through its stream, or through a new one.
    async fn lease_keep(&self, lease: i64) -> StoreResult<LeaseExtension> {
        if let Some(mut keeper) = self.keepers.take(lease) {
            // A stream that fails says nothing about the lease.
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

    /// Whether the lease was extended, now that the session was looked at. Asks again what was told
    /// by a leader of the past.
    async fn lease_kept(&self, lease: i64, mut extended: LeaseExtension) -> StoreResult<bool> {
        while extended.alive && extended.term < self.control.term().max(self.cluster.term()) {
            self.keepers.forget(lease);
            sleep(RETRY_PAUSE).await;
            extended = self.lease_keep(lease).await?;
        }
        Ok(extended.alive)
    }

    /// Whether the cluster has one member. One that has more once is never asked again.
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

    /// The session's key if it is neither ended nor evicted; replaces its note on the way.
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
        // Who was evicted hangs on another lease.
        let (nonce, lease) = (session.nonce.to_string(), self.keys.lease(session));
        let is_it = |live: &KeyValue| live.value == nonce.as_bytes() && live.lease == lease;
        let live = live.pop().filter(is_it);
        if live.is_some() {
            self.spend_again(session, spent.first()).await;
        }
        Ok(live)
    }

    /// Both must agree: the lease lives on for a whole TTL, and the session hangs on it.
    pub(super) async fn session_keep_alive(
        &self,
        session: &Session,
        note: Option<&Note>,
        holds: &[Hold],
    ) -> StoreResult<KeptAlive> {
        self.saw_holds(holds.iter());
        let lease = self.keys.lease(session);
        let comparing = async { Hold::common_mark(holds, session) };
        // A lease that was extended is a change, though one that ends by itself.
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
            // Looked at after the server has said which revision it is at: what is found is not
            // older, and when it stays at that revision, not younger either.
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

    /// `live` is the session, if its lease was extended and it hangs on it.
    async fn agreed(
        &self,
        session: &Session,
        holds: &[Hold],
        common: Option<Mark>,
        live: Option<KeyValue>,
    ) -> StoreResult<KeptAlive> {
        let Some(live) = live else {
            self.keepers.forget(self.keys.lease(session));
            return Ok(KeptAlive::Ended);
        };
        self.kept(session, holds, common, mark(session, &live)).await
    }

    /// The fates of the holds of a session that lives.
    async fn kept(
        &self,
        session: &Session,
        holds: &[Hold],
        common: Option<Mark>,
        mark: Mark,
    ) -> StoreResult<KeptAlive> {
        let (mut fates, unsure) = fates_by_mark(session, holds, common, mark);
        if !unsure.is_empty() {
            let names: Vec<String> =
                unsure.iter().map(|at| self.keys.fence(&holds[*at].duty)).collect();
            let found = self.cluster.read_all(&names).await?;
            for (at, found) in unsure.into_iter().zip(found) {
                let stands = FenceRecord::of(&holds[at]).text();
                if found.is_some_and(|found| found.value == stands.as_bytes()) {
                    *fates.get_mut(at).ok_or_else(|| error::unexpected("no such hold"))? =
                        HoldFate::Kept;
                }
            }
        }
        Ok(KeptAlive::Kept { mark, holds: fates })
    }
}
