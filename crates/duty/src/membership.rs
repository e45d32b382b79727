//! A membership as user code sees it: events, or one task per duty.

use std::collections::VecDeque;
use std::fmt::Display;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::engine::{EngineEvent, WorkOutcome};
use tenure_core::{DutyKey, GroupName, Hold, InstanceId, Problem, StoreError};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::DutyError;
use crate::guard::Guard;
use crate::hold_state::DriverHandle;
use crate::report::ReportHandle;

/// Event that user code has to act on.
#[derive(Debug)]
#[non_exhaustive]
pub enum MembershipEvent {
    /// A duty was granted: begin to work on it, and keep the guard meanwhile.
    Assigned(Guard),
    /// The work on a duty has to end: stop intake, commit, drop the guard. See also
    /// [`Guard::stopping`].
    Stopping {
        /// The hold to give back.
        hold: Hold,
        /// Reason.
        why: &'static str,
    },
    /// A hold was lost: give up its work at once, and drop the guard. It comes only after the
    /// `Assigned` of the hold; [`Guard::lost`] may wake before it. If the work has ended by itself
    /// meanwhile, there is nothing to do.
    Revoked {
        /// The hold that was lost.
        hold: Hold,
        /// Reason.
        why: &'static str,
    },
    /// A request of this process was refused.
    Refused(Problem),
    /// The store failed to grant a duty; this process tries again.
    ClaimFailed(StoreError),
    /// Other members hold all duties; this process waits.
    Standby {
        /// The holder, if the group has one duty.
        holder: Option<InstanceId>,
    },
    /// The membership has ended: by request, or because it cannot continue. The last event.
    Ended(Result<(), Problem>),
}

/// A member of a group. [`Membership::next`] reports events; [`Membership::run`] handles them all.
///
/// Dropping it leaves in the background. A process that is about to end should wait for
/// [`Membership::leave`] instead; otherwise other members wait for the TTL.
#[derive(Debug)]
pub struct Membership {
    events: Arc<EventQueue>,
    leaver: LeaveHandle,
    group: GroupName,
    instance: InstanceId,
}

/// Handle that ends or drains a membership from other code, such as a signal handler.
#[derive(Clone, Debug)]
pub struct LeaveHandle(DriverHandle);

impl LeaveHandle {
    /// Stops the work, gives everything back and leaves.
    pub fn leave(&self) {
        self.0.send(EngineEvent::Leave);
    }

    /// Hands everything over and leaves; refused ([`tenure_core::Code::LastMember`]) while no other
    /// member takes it.
    pub fn drain(&self) {
        self.0.send(EngineEvent::Drain);
    }

    /// Reports that the work on every duty fails here: for `rest`, duties move to members whose
    /// work does not fail, if there are any. Zero withdraws the report.
    pub fn failing(&self, rest: Duration) {
        self.0.send(EngineEvent::Failing { rest });
    }
}

impl Membership {
    pub(crate) fn new(
        events: Arc<EventQueue>,
        handle: DriverHandle,
        group: GroupName,
        instance: InstanceId,
    ) -> Self {
        Self { events, leaver: LeaveHandle(handle), group, instance }
    }

    /// Returns the group.
    pub fn group(&self) -> &GroupName {
        &self.group
    }

    /// Returns the instance id of this member.
    pub fn instance(&self) -> &InstanceId {
        &self.instance
    }

    /// Returns the next event, or `None` after [`MembershipEvent::Ended`]. Cancellation-safe.
    pub async fn next(&mut self) -> Option<MembershipEvent> {
        self.events.next().await
    }

    /// Returns a handle that ends this membership from other code.
    pub fn leaver(&self) -> LeaveHandle {
        self.leaver.clone()
    }

    /// Returns a handle that stores and loads the reports of this group.
    pub fn reports(&self) -> ReportHandle {
        ReportHandle::new(self.leaver.0.clone(), self.group.clone())
    }

    /// Stops the work, gives everything back, and waits until that is done. Work that does not end
    /// in time is revoked.
    pub async fn leave(mut self) -> Result<(), DutyError> {
        self.leaver.leave();
        loop {
            match self.next().await {
                Some(MembershipEvent::Ended(end)) => return end.map_err(DutyError::Refused),
                None => return Ok(()),
                // A guard that arrives now is dropped, which gives its duty back.
                Some(_) => {}
            }
        }
    }

    /// Runs `work` as a task for each assigned duty, until the membership ends. The task is dropped
    /// when the hold is lost, before the TTL ends and even if the thread that renews is stuck; it
    /// should end by itself after [`Guard::stopping`]. After an error or a panic the work is tried
    /// again, here or elsewhere.
    pub async fn run<F, Fut, E>(self, work: F) -> Result<(), DutyError>
    where
        F: Fn(Guard) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Display + Send + 'static,
    {
        let work = Arc::new(work);
        let mut tasks = JoinSet::new();
        let end = loop {
            tokio::select! {
                biased;
                event = self.events.next() => match event {
                    Some(MembershipEvent::Assigned(guard)) => {
                        tasks.spawn(attend(guard, Arc::clone(&work), self.leaver.0.clone()));
                    }
                    Some(MembershipEvent::Ended(end)) => break end,
                    None => break Ok(()),
                    Some(_) => {}
                },
                Some(_) = tasks.join_next() => {}
            }
        };
        // Every hold has ended by now, so every task does.
        while tasks.join_next().await.is_some() {}
        end.map_err(DutyError::Refused)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.leaver.leave();
        self.events.close();
    }
}

/// Report of the work's outcome, made on drop: also after a panic or when its runtime ends.
struct FinishOnDrop {
    guard: Guard,
    how: WorkOutcome,
}

impl Drop for FinishOnDrop {
    fn drop(&mut self) {
        self.guard.finished(if std::thread::panicking() { WorkOutcome::Failed } else { self.how });
    }
}

async fn attend<F, Fut, E>(guard: Guard, work: Arc<F>, handle: DriverHandle)
where
    F: Fn(Guard) -> Fut,
    Fut: Future<Output = Result<(), E>>,
    E: Display,
{
    let mut finish = FinishOnDrop { guard: guard.clone(), how: WorkOutcome::Asked };
    let result = tokio::select! {
        biased;
        () = guard.lost() => return,
        result = work(guard.clone()) => result,
    };
    if let Err(error) = &result {
        let DutyKey { group, id } = guard.duty();
        handle.observer.work_failed(group, id, guard.epoch(), &error.to_string());
    }
    finish.how = match result {
        Err(_) => WorkOutcome::Failed,
        Ok(()) if guard.draining() => WorkOutcome::Asked,
        Ok(()) => WorkOutcome::Done,
    };
}

/// Queue of events for user code. It needs no limit: there are at most three per hold, because a
/// duty is not granted again before its guard was dropped; of other kinds only the newest is kept.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    queue: Mutex<QueueState>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    events: VecDeque<MembershipEvent>,
    /// Whether user code has stopped reading.
    closed: bool,
    /// Whether the last event was queued.
    ended: bool,
}

impl EventQueue {
    pub(crate) fn push(&self, event: MembershipEvent) {
        let mut queue = self.lock();
        if queue.ended {
            return;
        }
        queue.ended = matches!(event, MembershipEvent::Ended(_));
        if queue.closed {
            // Unlocks before the event is dropped: its guard then gives the duty back.
            return drop(queue);
        }
        let replaces = matches!(
            event,
            MembershipEvent::Standby { .. }
                | MembershipEvent::Refused(_)
                | MembershipEvent::ClaimFailed(_)
        );
        if replaces {
            let kind = std::mem::discriminant(&event);
            queue.events.retain(|waiting| std::mem::discriminant(waiting) != kind);
        }
        queue.events.push_back(event);
        drop(queue);
        self.filled.notify_one();
    }

    async fn next(&self) -> Option<MembershipEvent> {
        loop {
            let filled = self.filled.notified();
            match self.pop() {
                Some(event) => return Some(event),
                None if self.lock().ended => return None,
                None => filled.await,
            }
        }
    }

    /// Takes the next event, without assignments that were lost before user code saw them.
    fn pop(&self) -> Option<MembershipEvent> {
        loop {
            let event = self.lock().events.pop_front()?;
            match &event {
                MembershipEvent::Assigned(guard) if !guard.state().take() => {}
                _ => return Some(event),
            }
        }
    }

    fn close(&self) {
        let mut queue = self.lock();
        queue.closed = true;
        let waiting = std::mem::take(&mut queue.events);
        // Guards are dropped outside of the lock.
        drop(queue);
        drop(waiting);
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
