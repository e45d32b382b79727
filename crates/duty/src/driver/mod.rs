//! Driver of the engine, on a thread of its own with its own runtime and connections: nothing that
//! user code does delays a renewal (R7).

mod call;
mod hints;
pub(crate) mod holds;
mod listing;
mod open;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::engine::{Effect, Engine, EngineEvent, EngineExit, MemberSettings, StoreResponse};
use tenure_core::store::KeptAlive;
use tenure_core::{Change, Clock, Code, LocalInstant, Problem, Record, Store, StoreError};
use tokio::sync::{mpsc, oneshot};

use crate::DutyError;
use crate::hold_state::DriverHandle;
use crate::join::Join;
use crate::membership::{EventQueue, Membership, MembershipEvent};
use crate::observe::Operation;
use call::CallResult;
use holds::Holds;

/// Limit of guard commands processed before the held duties are reported.
const MAX_COMMAND_BATCH: usize = 256;

/// Starts the thread, and waits until the first attempt to join has ended.
pub(crate) async fn start(join: Join) -> Result<Membership, DutyError> {
    let (handle, commands) = DriverHandle::new(Arc::clone(&join.observer));
    let events = Arc::new(EventQueue::default());
    let MemberSettings { group, instance, .. } = join.settings.clone();
    // Made first: if anything below fails, dropping it ends the thread.
    let membership = Membership::new(Arc::clone(&events), handle.clone(), group, instance);
    let (ready, first) = oneshot::channel();
    on_a_thread("tenure-renew", move || async move {
        open::attend(join, handle, events, commands, ready).await;
    })?;
    let ended =
        |_| Err(StoreError::unknown(Code::Failed, "the thread that renews has ended").into());
    first.await.unwrap_or_else(ended)?;
    Ok(membership)
}

/// Runs a future on a thread of its own with a runtime of its own.
pub(crate) fn on_a_thread<Fut: Future<Output = ()>>(
    name: &str,
    main: impl FnOnce() -> Fut + Send + 'static,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let body = move || {
        runtime.block_on(main());
        // A blocking call of a store that hangs must not keep the thread.
        runtime.shutdown_timeout(Duration::from_secs(1));
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(body)?;
    Ok(())
}

/// Sender of the result of the first attempt to join.
#[derive(Debug)]
struct ReadySender {
    sender: Option<oneshot::Sender<Result<(), DutyError>>>,
    /// Whether an unreachable store is retried.
    waits: bool,
}

impl ReadySender {
    fn send(&mut self, result: Result<(), DutyError>) {
        if let Some(sender) = self.sender.take() {
            // A caller that does not wait any more has dropped the membership.
            let _ = sender.send(result);
        }
    }

    /// An attempt failed that may succeed later.
    fn failed(&mut self, error: StoreError) {
        self.send(if self.waits { Ok(()) } else { Err(error.into()) });
    }
}

struct Driver {
    engine: Engine,
    settings: MemberSettings,
    store: Arc<dyn Store>,
    commands: mpsc::UnboundedReceiver<EngineEvent>,
    ready: ReadySender,
    /// It was a member once: from then on every failure is waited out.
    joined: bool,
    join_error: Option<StoreError>,
    calls: tokio::task::JoinSet<CallResult>,
    holds: Holds,
    hints: mpsc::Receiver<()>,
    lists: mpsc::Receiver<EngineEvent>,
}

impl Driver {
    async fn run(mut self) {
        let mut commands = Vec::new();
        let clock = Arc::clone(&self.holds.clock);
        loop {
            let wake = self.engine.wake_at();
            let over = tokio::select! {
                biased;
                Some(called) = self.calls.join_next() => match called {
                    Ok(called) => self.answered(called),
                    // Only a runtime that ends cancels a call.
                    Err(_) => return,
                },
                _ = self.commands.recv_many(&mut commands, MAX_COMMAND_BATCH) => {
                    commands.drain(..).any(|command| self.commanded(command))
                }
                () = nap(&*clock, wake, self.settings.ttl.margin()) => self.step(EngineEvent::Tick),
                Some(()) = self.hints.recv() => self.step(EngineEvent::Hint),
                Some(listed) = self.lists.recv() => self.step(listed),
            };
            self.holds.report();
            if over {
                return;
            }
        }
    }

    /// Steps the engine and performs its effects. Returns whether it has ended.
    fn step(&mut self, event: EngineEvent) -> bool {
        let mut over = false;
        for effect in self.engine.step(event, self.holds.clock.now()) {
            over |= self.perform(effect);
        }
        over
    }

    fn perform(&mut self, effect: Effect) -> bool {
        match effect {
            Effect::Ask { ticket, request, within } => {
                let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.holds.clock));
                self.calls.spawn(call::call(store, clock, ticket, request, within));
            }
            Effect::Assign { hold, deadline } => self.holds.assign(hold, deadline.at()),
            Effect::Extend { duty, epoch, deadline } => {
                self.holds.extend(&(duty, epoch), deadline);
            }
            Effect::Suspend => self.holds.suspend(),
            Effect::Drain { duty, epoch, why, until: _ } => {
                self.holds.drain(&(duty, epoch), why.as_str());
            }
            Effect::Revoke { duty, epoch, why } => self.holds.revoke(&(duty, epoch), why.as_str()),
            Effect::Record(record) => self.recorded(&record),
            Effect::Refuse(problem) => self.holds.events.push(MembershipEvent::Refused(problem)),
            Effect::End(exit) => {
                let end = match exit {
                    EngineExit::Left => Ok(()),
                    EngineExit::Failed(problem) => Err(problem),
                };
                self.ready.send(end.clone().map_err(DutyError::Refused));
                self.holds.events.push(MembershipEvent::Ended(end));
                return true;
            }
        }
        false
    }

    fn recorded(&mut self, record: &Record) {
        self.holds.record(record);
        match record.change {
            Change::Joined => {
                self.joined = true;
                self.ready.send(Ok(()));
            }
            Change::JoinFailed => {
                if let Some(error) = self.join_error.take() {
                    self.ready.failed(error);
                }
            }
            Change::Standby => {
                self.holds.events.push(MembershipEvent::Standby { holder: record.other.clone() });
            }
            _ => {}
        }
    }

    fn answered(&mut self, called: CallResult) -> bool {
        let CallResult { ticket, response, operation, took, error } = called;
        let (observer, group) = (&self.holds.handle.observer, &self.settings.group);
        observer.store_called(group, operation, took, error.is_none());
        if let StoreResponse::KeepAlive(Ok(KeptAlive::Kept { .. })) = response
            && let Some(deadline) = self.holds.first_deadline()
        {
            observer.renewed(group, deadline.since(self.holds.clock.now()));
        }
        if let (Operation::Acquire, Some(error)) = (operation, &error) {
            self.holds.events.push(MembershipEvent::ClaimFailed(error.clone()));
        }
        if let Some(error) = error.filter(|_| !self.joined) {
            if !error.may_pass() {
                return self.failed(error.problem().clone());
            }
            self.join_error = Some(error);
        }
        self.step(EngineEvent::Answered(ticket, response))
    }

    /// Gives up before it was a member: waiting would not help.
    fn failed(&mut self, problem: Problem) -> bool {
        self.holds.record(&open::join_failed(&self.settings, &*self.holds.clock, &problem));
        self.perform(Effect::End(EngineExit::Failed(problem)))
    }

    fn commanded(&mut self, command: EngineEvent) -> bool {
        match &command {
            EngineEvent::Stopped { duty, epoch, .. }
                if !self.holds.stopped(&(duty.clone(), *epoch)) =>
            {
                false
            }
            _ => self.step(command),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // However the thread ended: nobody renews any more, and nobody is left waiting.
        let problem = Problem::new(Code::Failed, "the thread has ended");
        self.holds.events.push(MembershipEvent::Ended(Err(problem)));
        self.holds.end();
    }
}

/// Waits until `wake`. Timers stand still while the machine is suspended and the clock does not, so
/// it reads the clock again after `most` at the latest.
pub(crate) async fn nap(clock: &dyn Clock, wake: LocalInstant, most: Duration) {
    loop {
        let left = wake.since(clock.now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(most)).await;
    }
}

#[cfg(test)]
mod tests;
