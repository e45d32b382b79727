//! Sessions: opening, closing, evicting.

use std::time::Duration;

use tenure_core::store::{AuditKind, Closed, Evict, Evicted, OpenSession, Opened};
use tenure_core::{
    Clock, Code, DutyKey, GroupName, InstanceId, Nonce, Reason, Session, StoreResult, Ttl,
};
use tenure_etcd::{KeyValue, Put, Txn, TxnOp, TxnOpResponse, TxnOutcome};
use tokio::time::timeout;

use super::audit::AuditBatch;
use super::call::EtcdCall;
use super::cluster::{CALL_TIMEOUT, KEEP_ALIVE_TIMEOUT, TxnFailure, TxnResult};
use super::error::RequestError;
use super::key::{self, FenceRecord};
use super::read::get;
use super::{MAX_TXN_ITEMS, PAGE_KEYS, absent, equals, error};
use crate::BootClock;

/// Minimum time for which ended sessions and evictions are remembered.
const NONCE_RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// TTL of the lease for short-lived records. A handle grants a new one halfway, and then has a day
/// to move records that are still needed.
const MEMORY_LEASE_SECONDS: i64 = (2 * 7 + 1) * 24 * 60 * 60;

/// etcd counts whole seconds and grants at least one and a half election timeouts.
const MIN_LEASE_SECONDS: i64 = 2;

/// Converts a TTL to etcd's seconds, never shorter than requested.
pub(super) fn seconds(ttl: Ttl) -> i64 {
    (ttl.as_millis().div_ceil(1000) as i64).max(MIN_LEASE_SECONDS)
}

/// Content of a session's key.
struct SessionEntry {
    nonce: Nonce,
    lease: i64,
}

fn found(keys: &[KeyValue]) -> StoreResult<Option<SessionEntry>> {
    let read = |found: &KeyValue| {
        Ok(SessionEntry { nonce: key::parse_nonce(&found.value)?, lease: found.lease })
    };
    keys.first().map(read).transpose()
}

/// Counts the nested transactions that took effect.
fn succeeded(responses: &[TxnOpResponse]) -> u64 {
    responses.iter().filter(|response| response.succeeded()).count() as u64
}

impl EtcdCall<'_> {
    pub(super) async fn session_open(&self, open: &OpenSession) -> StoreResult<Opened> {
        self.ready().await?;
        let session = open.session();
        let (group, instance) = (&open.group, &open.instance);
        let (name, barred) =
            (self.keys.session(group, instance), self.keys.barred(group, instance));
        let spent = self.keys.spent(group, open.nonce);
        loop {
            let keys = [get(&self.keys.store()), get(&barred), get(&name), get(&spent)];
            let [store, barred, live, spent] = self.cluster.read(keys).await?;
            self.ground(&store)?;
            if !barred.is_empty() {
                return Ok(Opened::Evicted);
            }
            match found(&live)? {
                Some(live) if live.nonce != open.nonce => return Ok(Opened::Taken),
                Some(_) => {
                    if self.session_refresh(open, &session).await? {
                        return Ok(Opened::Open(session));
                    }
                    continue;
                }
                None if !spent.is_empty() => return Ok(Opened::Spent),
                None => {}
            }
            if self.session_make(open, &session).await? {
                self.audit_tend(group).await;
                return Ok(Opened::Open(session));
            }
        }
    }

    /// Repeats an opening: renews the TTL and replaces the note. False if the session has ended.
    async fn session_refresh(&self, open: &OpenSession, session: &Session) -> StoreResult<bool> {
        match self.cluster.extend(self.keys.lease(session)).await {
            Err(RequestError::LeaseGone) => return Ok(false),
            extended => extended.map_err(RequestError::into_error)?,
        }
        let txn = self.note_txn(session, open.note.as_str());
        match self.guarded(txn).await {
            Ok(done) => Ok(done.response.succeeded),
            Err(TxnFailure::LeaseGone) => Ok(false),
            Err(failed) => Err(failed.into_error()),
        }
    }

    /// Builds a transaction that replaces the note of a session that is neither ended nor evicted.
    pub(super) fn note_txn(&self, session: &Session, note: &str) -> Txn {
        let (group, instance) = (&session.group, &session.instance);
        let name = self.keys.session(group, instance);
        let lease = self.keys.lease(session);
        Txn::new()
            .when([
                equals(&name, session.nonce.to_string()),
                absent(&self.keys.barred(group, instance)),
            ])
            .and_then([
                TxnOp::put_leased(self.keys.note(group, instance), note, lease),
                get(&self.keys.spent(group, session.nonce)),
                get(&name),
            ])
    }

    /// Creates the session. False if another instance was faster or a lease has ended: read again.
    async fn session_make(&self, open: &OpenSession, session: &Session) -> StoreResult<bool> {
        let (group, instance) = (&open.group, &open.instance);
        // An unused lease ends by itself; revoking it could end the same opening by another
        // process.
        let lease = self.cluster.grant(self.keys.lease(session), seconds(open.ttl)).await?;
        let memory = self.memory().await?;
        let name = self.keys.session(group, instance);
        let (spent, index) = (self.keys.spent(group, open.nonce), self.keys.index_of(group));
        let mut trail = self.trail(group, "open");
        let listed = Txn::new().when([absent(&index)]).and_then([TxnOp::put(index, Vec::new())]);
        let txn = Txn::new()
            .when([absent(&name), absent(&self.keys.barred(group, instance)), absent(&spent)])
            .and_then([
                TxnOp::put_leased(name, open.nonce.to_string(), lease),
                TxnOp::put_leased(self.keys.note(group, instance), open.note.as_str(), lease),
                TxnOp::put_leased(spent, Vec::new(), memory),
                trail.put(AuditKind::Joined, instance, None),
                TxnOp::txn(listed),
            ]);
        match self.guarded(txn).await {
            Ok(done) => Ok(done.response.succeeded),
            Err(TxnFailure::LeaseGone) => {
                self.known().memory = None;
                Ok(false)
            }
            Err(failed) => Err(failed.into_error()),
        }
    }

    /// Returns the lease for records that are kept for a week.
    async fn memory(&self) -> StoreResult<i64> {
        let now = BootClock.now();
        let granted = self.known().memory;
        if let Some((lease, _)) = granted.filter(|(_, at)| now.since(*at) < NONCE_RETENTION) {
            return Ok(lease);
        }
        let name = key::handle_number(&[u128::from(self.number), u128::from(self.next_number())]);
        let lease = self.cluster.grant(name as i64, MEMORY_LEASE_SECONDS).await?;
        self.known().memory = Some((lease, now));
        Ok(lease)
    }

    /// Records that a nonce was used.
    fn spent_op(&self, group: &GroupName, nonce: Nonce, memory: i64) -> TxnOp {
        TxnOp::put_leased(self.keys.spent(group, nonce), Vec::new(), memory)
    }

    /// Moves the record of a session's nonce to the current lease, because a session may outlive
    /// the lease that it is attached to. If that fails, the next keep-alive retries.
    pub(super) async fn spend_again(&self, session: &Session, spent: Option<&KeyValue>) {
        let (group, instance) = (&session.group, &session.instance);
        let moving = async {
            let memory = self.memory().await.ok()?;
            if spent.is_some_and(|spent| spent.lease == memory) {
                return None;
            }
            let alive = equals(&self.keys.session(group, instance), session.nonce.to_string());
            let put = self.spent_op(group, session.nonce, memory);
            let txn = Txn::new().when([alive]).and_then([put]);
            // Not observable while the session lives, so it is no change made by the caller's call.
            if let Err(TxnFailure::LeaseGone) = EtcdCall::new(self.store).guarded(txn).await {
                self.known().memory = None;
            }
            Some(())
        };
        let _ = timeout(KEEP_ALIVE_TIMEOUT, moving).await;
    }

    /// Returns the duties that this session holds according to their fences.
    pub(super) async fn held_by(
        &self,
        group: &GroupName,
        instance: &InstanceId,
        nonce: Nonce,
    ) -> StoreResult<Vec<(DutyKey, FenceRecord)>> {
        let folder = self.keys.fences(group);
        let mut held = Vec::new();
        for found in self.cluster.range(&folder, PAGE_KEYS).await? {
            let fence = FenceRecord::parse(&found.value)?;
            if fence.held && fence.nonce == nonce && &fence.instance == instance {
                held.push((key::duty_at(group, &found.key, &folder)?, fence));
            }
        }
        Ok(held)
    }

    /// Frees a duty if its fence is unchanged.
    fn free_op(
        &self,
        (duty, fence): &(DutyKey, FenceRecord),
        kind: AuditKind,
        trail: &mut AuditBatch,
    ) -> TxnOp {
        let name = self.keys.fence(duty);
        let record = trail.put(kind, &fence.instance, Some((&duty.id, fence.epoch)));
        TxnOp::txn(
            Txn::new()
                .when([equals(&name, fence.text())])
                .and_then([TxnOp::put(name, fence.freed().text()), record]),
        )
    }

    /// Frees the remaining duties of an ended session; returns their number.
    async fn free_rest(
        &self,
        group: &GroupName,
        who: (&InstanceId, Nonce),
        (kind, reason): (AuditKind, &Reason),
    ) -> StoreResult<u64> {
        let mut freed = 0;
        for part in self.held_by(group, who.0, who.1).await?.chunks(MAX_TXN_ITEMS) {
            let mut trail = self.trail(group, reason.as_str());
            let ops: Vec<_> =
                part.iter().map(|held| self.free_op(held, kind, &mut trail)).collect();
            let done = self.commit(Txn::new().and_then(ops)).await?;
            freed += succeeded(&done.response.responses);
        }
        Ok(freed)
    }

    pub(super) async fn session_close(
        &self,
        session: &Session,
        reason: &Reason,
    ) -> StoreResult<Closed> {
        let (group, instance) = (&session.group, &session.instance);
        let name = self.keys.session(group, instance);
        self.keepers.forget(self.keys.lease(session));
        let alive = equals(&name, session.nonce.to_string());
        let done = loop {
            let mut held = self.held_by(group, instance, session.nonce).await?;
            held.truncate(MAX_TXN_ITEMS);
            let mut trail = self.trail(group, reason.as_str());
            let gone =
                [TxnOp::delete(name.as_str()), TxnOp::delete(self.keys.note(group, instance))];
            let mut ops = gone.to_vec();
            let free = |held| self.free_op(held, AuditKind::Released, &mut trail);
            ops.extend(held.iter().map(free));
            let ours = trail.next_key();
            ops.push(trail.put(AuditKind::Left, instance, None));
            // A full store grants no lease either; the record made when the session opened must
            // suffice.
            if let Ok(memory) = self.memory().await {
                ops.push(self.spent_op(group, session.nonce, memory));
            }
            let txn = Txn::new().when([alive.clone()]).and_then(ops).or_else([get(&ours)]);
            match self.guarded(txn).await {
                // A full store accepts no records, but sessions can still be ended.
                Err(TxnFailure::Store(error)) if error.code() == Code::Full => {
                    let txn = Txn::new().when([alive]).and_then(gone).or_else([get(&ours)]);
                    return Ok(closed(&self.commit(txn).await?));
                }
                Err(TxnFailure::LeaseGone) => self.known().memory = None,
                done => break done.map_err(TxnFailure::into_error)?,
            }
        };
        let closed = closed(&done);
        if closed == Closed::Closed {
            // Duties granted meanwhile, or too many to fit. Then nothing is attached to the lease.
            let how = (AuditKind::Released, reason);
            self.free_rest(group, (instance, session.nonce), how).await?;
            self.cluster.revoke(self.keys.lease(session)).await;
            self.audit_tend(group).await;
        }
        Ok(closed)
    }

    pub(super) async fn session_evict(
        &self,
        group: &GroupName,
        instance: &InstanceId,
        when: Evict,
        reason: &Reason,
    ) -> StoreResult<Evicted> {
        let (name, barred) =
            (self.keys.session(group, instance), self.keys.barred(group, instance));
        loop {
            let [live, before] = self.cluster.read([get(&name), get(&barred)]).await?;
            let live = found(&live)?;
            let mut trail = self.trail(group, reason.as_str());
            let mut compares = vec![match &live {
                Some(live) => equals(&name, live.nonce.to_string()),
                None => absent(&name),
            }];
            // Evicting an instance again renews the record of its eviction.
            let memory = self.memory().await?;
            let mut ops = vec![TxnOp::put_leased(barred.as_str(), Vec::new(), memory)];
            if let Some(live) = &live {
                ops.push(self.spent_op(group, live.nonce, memory));
            }
            if before.is_empty() {
                compares.push(absent(&barred));
                ops.push(trail.put(AuditKind::Evicted, instance, None));
            }
            match (&live, when) {
                (Some(live), Evict::Now) => {
                    let mut held = self.held_by(group, instance, live.nonce).await?;
                    held.truncate(MAX_TXN_ITEMS);
                    ops.push(TxnOp::delete(name.as_str()));
                    ops.push(TxnOp::delete(self.keys.note(group, instance)));
                    let free = |held| self.free_op(held, AuditKind::Evicted, &mut trail);
                    ops.extend(held.iter().map(free));
                }
                (Some(live), Evict::AtTtl) if before.is_empty() => {
                    ops.extend(self.last_ttl(group, instance, live).await?);
                }
                _ => {}
            }
            let txn = Txn::new().when(compares).and_then(ops);
            let done = match self.guarded(txn).await {
                Err(TxnFailure::LeaseGone) => {
                    self.known().memory = None;
                    continue;
                }
                done => done.map_err(TxnFailure::into_error)?,
            };
            if !done.response.succeeded {
                // An earlier attempt may have succeeded; the number of ended holds is then unknown.
                if done.unsure {
                    return Err(error::lost(&self.cluster.address()));
                }
                continue;
            }
            let Some(live) = live else { return Ok(Evicted::NotAMember) };
            let mut ended = 0;
            if when == Evict::Now {
                ended = succeeded(&done.response.responses);
                let how = (AuditKind::Evicted, reason);
                ended += self.free_rest(group, (instance, live.nonce), how).await?;
                self.cluster.revoke(live.lease).await;
            }
            return Ok(Evicted::Evicted { ended });
        }
    }

    /// Moves a session to a lease that nobody keeps alive. A TTL promised just before the move
    /// stays true: the new lease lasts until a whole TTL and a second after the latest moment at
    /// which this call can still take effect.
    async fn last_ttl(
        &self,
        group: &GroupName,
        instance: &InstanceId,
        live: &SessionEntry,
    ) -> StoreResult<[TxnOp; 2]> {
        let granted = self.cluster.granted(live.lease).await?.unwrap_or(MIN_LEASE_SECONDS);
        let number =
            [u128::from(self.number), u128::from(self.next_number()), live.nonce.as_u128()];
        let lease = key::handle_number(&number) as i64;
        let lease = self.cluster.grant(lease, granted + CALL_TIMEOUT.as_secs() as i64 + 1).await?;
        let moved =
            |key: String| Put { key: key.into(), lease, ignore_value: true, ..Put::default() };
        let moved =
            [self.keys.session(group, instance), self.keys.note(group, instance)].map(moved);
        Ok(moved.map(TxnOp::from))
    }
}

/// Returns the result of a closing transaction. If the session is gone, the audit record of this
/// call shows whether an earlier attempt closed it.
fn closed(done: &TxnResult) -> Closed {
    if done.response.succeeded {
        return Closed::Closed;
    }
    let recorded = done.response.responses.iter().any(
        |response| matches!(&response.outcome, Some(TxnOutcome::Get(got)) if !got.kvs.is_empty()),
    );
    if done.unsure && recorded { Closed::Closed } else { Closed::AlreadyEnded }
}
