//! Simulated store: the real memory store on virtual time, with the failures of each kind of store.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use tenure_core::engine::{GroupConfig, GroupView, StoreRequest, StoreResponse};
use tenure_core::store::{
    Adopt, Checkpoint, Claimed, Commit, Committed, Evict, Evicted, HoldFate, KeptAlive, Member,
};
use tenure_core::{
    Clock, Code, DutyKey, Epoch, GroupName, Hold, InstanceId, LocalInstant, Mutant, Reason,
    Session, Store, StoreError, Ttl,
};
use tenure_store::Memory;
use tenure_store::conformance::Snapshot;

use crate::Nanos;
use crate::ends::Ends;
use crate::rng::SimRng;
use crate::scenario::Kind;

/// Virtual time, as the clock of the memory store.
#[derive(Debug, Default)]
pub struct VirtualClock(AtomicU64);

impl VirtualClock {
    /// Sets the time.
    pub fn set(&self, now: Nanos) {
        self.0.store(now, Ordering::Relaxed);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> LocalInstant {
        LocalInstant::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// Limit of writes that a failover may lose.
const FORGETS: usize = 24;

/// The simulated store.
#[derive(Debug)]
pub struct SimStore {
    kind: Kind,
    group: GroupName,
    ttl: Ttl,
    memory: Memory,
    clock: Arc<VirtualClock>,
    /// Until when it is unreachable.
    away_until: Nanos,
    /// Number of resets that handles notice.
    incarnation: u32,
    /// Snapshots before each of the last writes; kept only if a failover may restore them.
    past: VecDeque<(Snapshot, Option<Ends>)>,
    /// Ends of holds that differ from their sessions'; `None` if holds have no TTL of their own.
    ends: Option<Ends>,
}

impl SimStore {
    /// Creates an empty store.
    pub fn new(kind: Kind, group: GroupName, ttl: Ttl) -> Self {
        let clock = Arc::new(VirtualClock::default());
        let memory = Memory::new(clock.clone());
        let past = VecDeque::new();
        let ends = matches!(kind, Kind::RedisAof | Kind::Lossy).then(Ends::default);
        Self { kind, group, ttl, memory, clock, away_until: 0, incarnation: 0, past, ends }
    }

    /// Sets the clock. Expired holds are released before the next request.
    pub fn set_time(&mut self, now: Nanos) {
        self.clock.set(now);
        let over = self.ends.as_mut().map(|ends| ends.over(now)).unwrap_or_default();
        for hold in over {
            let session = self.session_of(&hold);
            // A short word is always valid. If the session has ended, so has the hold.
            let reason = Reason::new("expired").expect("a valid reason");
            let _ = self::now(self.memory.release(&session, &[hold], &reason));
        }
    }

    fn session_of(&self, hold: &Hold) -> Session {
        Session {
            group: self.group.clone(),
            instance: hold.instance.clone(),
            nonce: hold.nonce,
            ttl: self.ttl,
        }
    }

    /// Whether it is reachable.
    pub fn is_up(&self, now: Nanos) -> bool {
        now >= self.away_until
    }

    /// Makes it unreachable until then.
    pub fn go_away(&mut self, until: Nanos) {
        self.away_until = self.away_until.max(until);
    }

    /// Makes it reachable again.
    pub fn come_back(&mut self, now: Nanos) {
        self.away_until = self.away_until.min(now);
    }

    /// Returns the incarnation that a newly opened handle knows.
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// Whether the handle must report a reset; that happens once per reset.
    pub fn is_reset(&self, seen: &mut u32) -> bool {
        let reset = *seen != self.incarnation;
        *seen = self.incarnation;
        reset
    }

    /// Answers a request of the engine; a look reads only the members.
    pub fn perform(&mut self, request: &StoreRequest, seen: &mut u32) -> StoreResponse {
        let reset = self.is_reset(seen);
        if !matches!(request, StoreRequest::Look { .. }) {
            self.remember();
        }
        let now = self.clock.now().as_nanos();
        if let (true, Some(who)) = (Mutant::R4Asker.is_on(), asker(request)) {
            self.clock.set(now + ahead(who, self.ttl));
        }
        let answer = self.serve(request, reset);
        self.clock.set(now);
        self.count_ends(request, &answer);
        answer
    }

    fn serve(&self, request: &StoreRequest, reset: bool) -> StoreResponse {
        let store = &self.memory;
        match request {
            StoreRequest::Open(open) => {
                StoreResponse::Open(unless(reset, || now(store.open_session(open))))
            }
            // A handle that finds another store has lost its session.
            StoreRequest::KeepAlive { .. } if reset => {
                StoreResponse::KeepAlive(Ok(KeptAlive::Ended))
            }
            StoreRequest::KeepAlive { session, note, holds } => {
                StoreResponse::KeepAlive(now(store.keep_alive(session, note.as_ref(), holds)))
            }
            StoreRequest::Claim { session, wants, reason } => {
                StoreResponse::Claim(unless(reset, || now(store.claim(session, wants, reason))))
            }
            StoreRequest::Release { session, holds, reason } => {
                StoreResponse::Release(unless(reset, || now(store.release(session, holds, reason))))
            }
            StoreRequest::Close { session, reason } => {
                StoreResponse::Close(unless(reset, || now(store.close_session(session, reason))))
            }
            StoreRequest::Look { group, .. } => StoreResponse::Look(unless(reset, || {
                let members = now(store.members(group))?;
                Ok(GroupView { members, ..GroupView::default() })
            })),
            StoreRequest::Settle { group, expected, document } => {
                StoreResponse::Settle(unless(reset, || {
                    now(store.replace_group_document(group, *expected, document))
                }))
            }
        }
    }

    /// Tracks the TTLs of holds where they have their own: a grant gives a hold the remaining time
    /// of its session, and a keep-alive extends the holds that it names.
    fn count_ends(&mut self, request: &StoreRequest, answer: &StoreResponse) {
        let (now, Some(mut ends)) = (self.clock.now().as_nanos(), self.ends.take()) else {
            return;
        };
        match (request, answer) {
            (StoreRequest::Claim { session, .. }, StoreResponse::Claim(Ok(claims))) => {
                let members = self.members();
                let mine = members.iter().find(|member| member.nonce == Some(session.nonce));
                let left = mine.map_or(0, |member| member.remaining.as_nanos() as Nanos);
                for claimed in claims {
                    if let Claimed::Granted(hold) = claimed {
                        ends.begin(hold.clone(), now + left);
                    }
                }
            }
            (
                StoreRequest::KeepAlive { session, holds, .. },
                StoreResponse::KeepAlive(Ok(KeptAlive::Kept { holds: fates, .. })),
            ) => {
                let until = now + session.ttl.as_millis() * 1_000_000;
                let kept = holds.iter().zip(fates).filter(|(_, fate)| **fate == HoldFate::Kept);
                kept.for_each(|(hold, _)| ends.extend(hold, until));
            }
            _ => {}
        }
        self.ends = Some(ends);
    }

    /// Reads the rest of a look, a moment after the members.
    pub fn look_on(&self, view: &mut GroupView, holders: bool) -> Result<(), StoreError> {
        view.document = now(self.memory.group_document(&self.group))?;
        view.holders = match holders {
            true => Some(now(self.memory.holders(&self.group))?),
            false => None,
        };
        if let Some(ends) = &self.ends {
            let now = self.clock.now().as_nanos();
            view.holders.iter_mut().flatten().for_each(|holder| ends.shorten(holder, now));
        }
        Ok(())
    }

    /// Returns the parsed document of the group.
    pub fn group(&self) -> GroupConfig {
        let document = now(self.memory.group_document(&self.group));
        document.and_then(|document| GroupConfig::read(&document)).unwrap_or_default()
    }

    /// Writes the document of the group, as an operator does.
    pub fn set_group(&mut self, group: &GroupConfig) {
        self.remember();
        let stored = now(self.memory.group_document(&self.group));
        if let (Ok(stored), Ok(document)) = (stored, group.document()) {
            // The version was read just now, so there is no conflict.
            let _ = now(self.memory.replace_group_document(&self.group, stored.version, &document));
        }
    }

    /// Loads the checkpoint of a duty.
    pub fn load(&self, duty: &DutyKey) -> Option<Checkpoint> {
        let loaded = now(self.memory.load(std::slice::from_ref(duty)));
        loaded.ok()?.pop().flatten()
    }

    /// Stores a checkpoint.
    pub fn commit(&mut self, session: &Session, commit: Commit) -> Result<Committed, StoreError> {
        self.remember();
        let mut done = now(self.memory.commit(session, &[commit]))?;
        done.pop().ok_or_else(|| StoreError::unknown(Code::Failed, "no answer"))
    }

    /// Returns when a hold ends if it is not extended; zero when it is not valid.
    pub fn ends_at(&self, hold: &Hold) -> Nanos {
        let session = self.memory.ends_at(hold).map_or(0, LocalInstant::as_nanos);
        let own = self.ends.as_ref().map(|ends| ends.of(hold).unwrap_or(0));
        own.map_or(session, |own| own.min(session))
    }

    /// Evicts an instance.
    pub fn evict(&mut self, instance: &InstanceId, when: Evict) -> Option<Evicted> {
        self.remember();
        let reason = Reason::new("operator").ok()?;
        now(self.memory.evict(&self.group, instance, when, &reason)).ok()
    }

    /// Ends a session early.
    pub fn revoke(&self, session: &Session) {
        self.memory.lapse(session);
    }

    /// Returns the current members.
    pub fn members(&self) -> Vec<Member> {
        now(self.memory.members(&self.group)).unwrap_or_default()
    }

    /// Returns the current state of the group.
    pub fn view(&self) -> GroupView {
        let mut view = GroupView { members: self.members(), ..GroupView::default() };
        // Reading the memory store does not fail.
        let _ = self.look_on(&mut view, true);
        view
    }

    /// Restarts, or fails over to a replica. Returns a description of the effect, and whether holds
    /// may have ended.
    pub fn restart(&mut self, at: Nanos, rng: &mut SimRng) -> (String, bool) {
        match self.kind {
            Kind::Durable => ("nothing was lost".to_owned(), false),
            Kind::Etcd => {
                self.memory.extend(&self.group, self.ttl);
                ("a new leader: sessions live for a whole TTL".to_owned(), false)
            }
            Kind::RedisAof => {
                let what = self.adopt(at, rng);
                self.incarnation += 1;
                self.ends = Some(Ends::default());
                (what, true)
            }
            // Beliefs are not judged for lossy stores.
            Kind::Lossy => (self.fail_over(at, rng), false),
        }
    }

    /// Adopts the store: all sessions end. Returns a description of the effect.
    pub fn adopt(&mut self, at: Nanos, rng: &mut SimRng) -> String {
        let floor = self.floor(at);
        // The floor is a time in microseconds, far from the end of the range.
        let _ = now(self.memory.adopt(&Adopt { entropy: rng.wide(), floor }));
        format!("sessions are gone, epochs continue above {floor}")
    }

    fn fail_over(&mut self, at: Nanos, rng: &mut SimRng) -> String {
        let floor = if rng.chance(500) { self.floor(at) } else { Epoch::ZERO };
        let tells = rng.chance(500);
        self.incarnation += u32::from(tells);
        let all = rng.chance(150);
        let lost = rng.below(self.past.len() as u64 + 1) as usize;
        let kept = self.past.len() - lost;
        let (before, ends) = match all {
            true => (Snapshot::default(), Some(Ends::default())),
            false => self.past.get(kept).cloned().unwrap_or_else(|| self.now()),
        };
        self.past.truncate(kept);
        self.memory.restore(before, floor);
        self.ends = ends;
        let what = if all { "everything".to_owned() } else { format!("{lost} writes") };
        format!("{what} lost, epochs continue above {floor}, handles report a reset: {tells}")
    }

    /// Returns an epoch above everything that was granted: a grant adds one, and there are few.
    fn floor(&self, at: Nanos) -> Epoch {
        Epoch::new(1_000_000 + at / 1000).unwrap_or(Epoch::ZERO)
    }

    fn now(&self) -> (Snapshot, Option<Ends>) {
        (self.memory.snapshot(), self.ends.clone())
    }

    fn remember(&mut self) {
        if self.kind != Kind::Lossy {
            return;
        }
        self.past.push_back(self.now());
        if self.past.len() > FORGETS {
            self.past.pop_front();
        }
    }
}

/// Returns the instance that sends a request.
fn asker(request: &StoreRequest) -> Option<&InstanceId> {
    match request {
        StoreRequest::Open(open) => Some(&open.instance),
        StoreRequest::KeepAlive { session, .. }
        | StoreRequest::Claim { session, .. }
        | StoreRequest::Release { session, .. }
        | StoreRequest::Close { session, .. } => Some(&session.instance),
        StoreRequest::Look { .. } | StoreRequest::Settle { .. } => None,
    }
}

/// Returns the offset of an instance's wall clock: up to a TTL.
fn ahead(instance: &InstanceId, ttl: Ttl) -> Nanos {
    let sum: u64 = instance.as_str().bytes().map(u64::from).sum();
    ttl.as_millis() * 1_000_000 / 10 * (sum % 10)
}

/// Returns the error for a handle that finds another store.
pub fn reset() -> StoreError {
    StoreError::refused(Code::Reset, "the store was reset")
}

fn unless<T>(reset: bool, call: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    if reset { Err(self::reset()) } else { call() }
}

/// Returns the result of a future of the memory store, which is always ready at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the memory store does not wait"),
    }
}
