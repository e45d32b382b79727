//! Drives the engine: a thread of its own, with a runtime and connections of its own, so that
//! nothing that user code does keeps a renewal from leaving (R7).

mod call;
mod hints;
pub(crate) mod holds;
mod listing;
mod open;

use std::sync::Arc;
use std::time::Duration;

use tenure_core::engine::{
    Effect, Engine, EngineEvent as Input, EngineExit, MemberSettings, StoreResponse,
};
use tenure_core::store::KeptAlive;
use tenure_core::{Change, Clock, Code, Problem, Record, Store, StoreError};
use tokio::sync::{mpsc, oneshot};

use crate::hold_state::{DriverCommand, DriverHandle};
use crate::join::Join;
use crate::membership::{EventQueue, Membership, MembershipEvent};
use crate::process;
use call::CallResult;
use holds::Holds;

/// Limit of guard commands processed before the held duties are reported.
const MAX_COMMAND_BATCH: usize = 256;

/// Starts the thread, and waits until the first attempt to join has ended.
pub(crate) async fn start(join: Join) -> Result<Membership, StoreError> {
    let (commands, orders) = mpsc::unbounded_channel();
    let desk =
        DriverHandle { commands, observer: Arc::clone(&join.observer), store: Arc::default() };
    let inbox = Arc::new(EventQueue::default());
    let MemberSettings { group, instance, .. } = join.settings.clone();
    // Made first: if anything below fails, dropping it ends the thread.
    let membership = Membership::new(Arc::clone(&inbox), desk.clone(), group, instance);
    let (ready, first) = oneshot::channel();
    on_a_thread("tenure-renew", move || async move {
        open::attend(join, desk, inbox, orders, ready).await;
    })?;
    first.await.unwrap_or_else(|_| Err(ended_early()))?;
    Ok(membership)
}

fn ended_early() -> StoreError {
    StoreError::unknown(Code::Failed, "the thread that renews has ended")
}

/// Runs a future on a thread of its own with a runtime of its own.
pub(crate) fn on_a_thread<Fut: Future<Output = ()>>(
    name: &str,
    main: impl FnOnce() -> Fut + Send + 'static,
) -> Result<(), StoreError> {
    let failed = |error: std::io::Error| {
        StoreError::refused(Code::Failed, format!("no thread could be started: {error}"))
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let body = move || {
        runtime.block_on(main());
        // A blocking call of a store that hangs must not keep the thread.
        runtime.shutdown_timeout(Duration::from_secs(1));
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map_err(failed)?;
    Ok(())
}

/// Sender of the result of the first attempt to join.
#[derive(Debug)]
struct ReadySender {
    sender: Option<oneshot::Sender<Result<(), StoreError>>>,
    /// A store that does not answer is tried again.
    waits: bool,
}

impl ReadySender {
    fn tell(&mut self, result: Result<(), StoreError>) {
        if let Some(sender) = self.sender.take() {
            // Who does not wait any more has dropped the membership.
            let _ = sender.send(result);
        }
    }

    /// An attempt failed that may succeed later.
    fn failed(&mut self, error: StoreError) {
        let result = if self.waits { Ok(()) } else { Err(error) };
        self.tell(result);
    }
}

struct Driver {
    engine: Engine,
    settings: MemberSettings,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    desk: DriverHandle,
    inbox: Arc<EventQueue>,
    orders: mpsc::UnboundedReceiver<DriverCommand>,
    ready: ReadySender,
    /// Was a member once: from then on whatever happens is waited out.
    joined: bool,
    join_error: Option<StoreError>,
    asks: tokio::task::JoinSet<CallResult>,
    holds: Holds,
    hints: mpsc::Receiver<()>,
    lists: mpsc::Receiver<Input>,
}

impl Driver {
    async fn run(mut self) {
        let mut orders = Vec::new();
        loop {
            let wake = self.engine.wake_at();
            let over = tokio::select! {
                biased;
                Some(asked) = self.asks.join_next() => match asked {
                    Ok(asked) => self.answered(asked),
                    // Only a runtime that ends cancels a question.
                    Err(_) => return,
                },
                _ = self.orders.recv_many(&mut orders, MAX_COMMAND_BATCH) => {
                    orders.drain(..).any(|order| self.ordered(order))
                }
                () = nap(&*self.clock, wake, self.settings.ttl.margin()) => self.step(Input::Tick),
                Some(()) = self.hints.recv() => self.step(Input::Hint),
                Some(listed) = self.lists.recv() => self.step(listed),
            };
            self.holds.report();
            if over {
                return;
            }
        }
    }

    /// Steps the engine and performs its effects. Returns whether it has ended.
    fn step(&mut self, input: Input) -> bool {
        let effects = self.engine.step(input, self.clock.now());
        let mut over = false;
        for effect in effects {
            over |= self.perform(effect);
        }
        over
    }

    fn perform(&mut self, effect: Effect) -> bool {
        match effect {
            Effect::Ask { ticket, request, within } => {
                let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
                self.asks.spawn(call::ask(store, clock, ticket, request, within));
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
            Effect::Refuse(problem) => self.inbox.push(MembershipEvent::Refused(problem)),
            Effect::End(EngineExit::Left) => {
                self.ready.tell(Ok(()));
                self.inbox.push(MembershipEvent::Ended(Ok(())));
                return true;
            }
            Effect::End(EngineExit::Failed(problem)) => {
                self.ready.tell(Err(StoreError::Refused(problem.clone())));
                self.inbox.push(MembershipEvent::Ended(Err(problem)));
                return true;
            }
        }
        false
    }

    fn recorded(&mut self, record: &Record) {
        self.desk.observer.recorded(&self.settings.group, record, process::unix_ms());
        match record.change {
            Change::Joined => {
                self.joined = true;
                self.ready.tell(Ok(()));
            }
            Change::JoinFailed => {
                if let Some(error) = self.join_error.take() {
                    self.ready.failed(error);
                }
            }
            Change::Standby => {
                self.inbox.push(MembershipEvent::Standby { holder: record.other.clone() });
            }
            _ => {}
        }
    }

    fn answered(&mut self, asked: CallResult) -> bool {
        let CallResult { ticket, answer, operation, took, error } = asked;
        self.desk.observer.asked(&self.settings.group, operation, took, error.is_none());
        if let StoreResponse::KeepAlive(Ok(KeptAlive::Kept { .. })) = answer
            && let Some(deadline) = self.holds.first_deadline()
        {
            let left = deadline.since(self.clock.now());
            self.desk.observer.renewed(&self.settings.group, left);
        }
        if let Some(error) = error.filter(|_| !self.joined) {
            if !open::may_pass(error.code()) {
                return self.failed(error.problem().clone());
            }
            self.join_error = Some(error);
        }
        self.step(Input::Answered(ticket, answer))
    }

    /// Gives up before it was a member: waiting would not help.
    fn failed(&mut self, problem: Problem) -> bool {
        let record = open::join_failed(&self.settings, &*self.clock, &problem);
        self.desk.observer.recorded(&self.settings.group, &record, process::unix_ms());
        self.perform(Effect::End(EngineExit::Failed(problem)))
    }

    fn ordered(&mut self, order: DriverCommand) -> bool {
        let input = match order {
            DriverCommand::Stopped { duty, epoch, how } => {
                if !self.holds.stopped(&(duty.clone(), epoch)) {
                    return false;
                }
                Input::Stopped { duty, epoch, how }
            }
            DriverCommand::Progress { duty, epoch } => Input::Progress { duty, epoch },
            DriverCommand::Fenced { duty, epoch, newest } => Input::Fenced { duty, epoch, newest },
            DriverCommand::Doubted => Input::Doubted,
            DriverCommand::Failing { rest } => Input::Failing { rest },
            DriverCommand::Drain => Input::Drain,
            DriverCommand::Leave => Input::Leave,
        };
        self.step(input)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // However the thread ended: nobody renews any more, and nobody is left waiting.
        let problem = Problem::new(Code::Failed, "the thread has ended");
        self.inbox.push(MembershipEvent::Ended(Err(problem)));
        self.holds.end();
    }
}

/// Waits until `wake`. Timers stand still while the machine is suspended and the clock does not, so
/// it looks up every now and then.
pub(crate) async fn nap(clock: &dyn Clock, wake: tenure_core::LocalInstant, most: Duration) {
    loop {
        let left = wake.since(clock.now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(most)).await;
    }
}
