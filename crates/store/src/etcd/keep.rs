//! Keeping sessions alive: the lease, and at the same time a look at the session.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use etcd_client::{KeyValue, LeaseKeepAliveStream, LeaseKeeper, TxnOpResponse};
use tenure_core::store::{HoldFate, KeptAlive, check};
use tenure_core::{Hold, Mark, Note, Session, StoreError};

use super::error::Trouble;
use super::key::Fence;
use super::link::{Call, Failed, Open, QUICK};
use super::{Etcd, error};
use crate::fates_by_mark;

/// So many streams stay open; whoever comes later opens one for each keep-alive.
const MOST: usize = 256;

/// Open streams by lease. One is taken out while it is used: an answer that nobody has waited for
/// must not be taken for the answer to a later question.
#[derive(Default)]
pub(super) struct Keepers(Mutex<BTreeMap<i64, Keeper>>);

struct Keeper {
    asks: LeaseKeeper,
    answers: LeaseKeepAliveStream,
}

impl Keepers {
    fn streams(&self) -> MutexGuard<'_, BTreeMap<i64, Keeper>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, lease: i64, keeper: Keeper) {
        let mut streams = self.streams();
        if streams.len() < MOST || streams.contains_key(&lease) {
            streams.insert(lease, keeper);
        }
    }

    fn take(&self, lease: i64) -> Option<Keeper> {
        self.streams().remove(&lease)
    }

    pub(super) fn forget(&self, lease: i64) {
        drop(self.take(lease));
    }
}

/// The mark of a session: how often its key was written, which each release does.
pub(super) fn mark(session: &Session, found: &KeyValue) -> Mark {
    Mark(Mark::first(session.nonce).0.wrapping_add(found.version() as u64))
}

impl Etcd {
    /// Extends the lease through its stream, or through a new one; false when the lease has ended.
    async fn lease_keep(&self, lease: i64) -> Result<bool, StoreError> {
        if let Some(mut keeper) = self.keepers.take(lease) {
            let asking = async {
                keeper.asks.keep_alive().await.ok()?;
                keeper.answers.message().await.ok()?
            };
            // A stream that fails says nothing about the lease.
            if let Ok(Some(answer)) = tokio::time::timeout(QUICK, asking).await {
                let alive = answer.ttl() > 0;
                if alive {
                    self.keepers.put(lease, keeper);
                }
                return Ok(alive);
            }
        }
        let sent = |open: Open| async move { open.client().lease_keep_alive(lease).await };
        match self.control.repeat(QUICK, sent).await {
            Ok((asks, answers)) => {
                self.keepers.put(lease, Keeper { asks, answers });
                Ok(true)
            }
            Err(Trouble::LeaseGone) => Ok(false),
            Err(trouble) => Err(trouble.into_error()),
        }
    }

    /// The session's key if it is neither ended nor evicted; replaces its note on the way.
    async fn session_look(
        &self,
        call: &Call,
        session: &Session,
        note: Option<&Note>,
    ) -> Result<Option<KeyValue>, StoreError> {
        if let Some(note) = note {
            let txn = self.note_txn(session, note.as_str());
            let done = match self.link.guarded(call, txn).await {
                Err(Failed::LeaseGone) => return Ok(None),
                done => done.map_err(Failed::into_error)?,
            };
            let written = done.response.op_responses().pop();
            return match written {
                Some(TxnOpResponse::Get(mut got)) => Ok(got.take_kvs().pop()),
                _ => Ok(None),
            };
        }
        let name = self.keys.session(&session.group, &session.instance);
        let live = self.control.read_quick(&name).await?;
        // Who was evicted hangs on another lease.
        let (nonce, lease) = (session.nonce.to_string(), self.keys.lease(session));
        Ok(live.filter(|live| live.value() == nonce.as_bytes() && live.lease() == lease))
    }

    /// Both must agree: the lease lives on for a whole TTL, and the session hangs on it.
    pub(super) async fn session_keep(
        &self,
        call: &Call,
        session: &Session,
        note: Option<&Note>,
        holds: &[Hold],
    ) -> Result<KeptAlive, StoreError> {
        check::keep_alive(holds)?;
        let lease = self.keys.lease(session);
        let looking = self.session_look(call, session, note);
        let comparing = async { Hold::common_mark(holds, session) };
        // A lease that was extended is a change, though one that ends by itself.
        call.sends();
        let (kept, live, common) = tokio::join!(self.lease_keep(lease), looking, comparing);
        if kept.is_err() {
            call.takes_back();
        }
        let live = match (live?, kept?) {
            (Some(live), true) => live,
            _ => {
                self.keepers.forget(lease);
                return Ok(KeptAlive::Ended);
            }
        };
        let mark = mark(session, &live);
        let (mut fates, unsure) = fates_by_mark(session, holds, common, mark);
        if !unsure.is_empty() {
            let names: Vec<String> =
                unsure.iter().map(|at| self.keys.fence(&holds[*at].duty)).collect();
            let found = self.link.read_all(&names).await?;
            for (at, found) in unsure.into_iter().zip(found) {
                let stands = Fence::of(&holds[at]).text();
                if found.is_some_and(|found| found.value() == stands.as_bytes()) {
                    *fates.get_mut(at).ok_or_else(|| error::unexpected("no such hold"))? =
                        HoldFate::Kept;
                }
            }
        }
        Ok(KeptAlive::Kept { mark, holds: fates })
    }
}
