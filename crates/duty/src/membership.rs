//! A membership as user code sees it: events, or one task per duty.

use std::collections::VecDeque;
use std::fmt::Display;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::engine::WorkOutcome;
use tenure_core::{GroupName, Hold, InstanceId, Problem, StoreError};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::guard::Guard;
use crate::hold_state::{DriverCommand, DriverHandle};

/// Something that user code is to know.
#[derive(Debug)]
#[non_exhaustive]
pub enum MembershipEvent {
    /// A duty was granted to this process: begin to work on it, and keep the guard meanwhile.
    Assigned(Guard),
    /// The work on a duty is to come to its end: stop intake, commit, drop the guard. Its guard
    /// says so, too ([`Guard::stopping`]).
    Stopping {
        /// The hold to give back.
        hold: Hold,
        /// Why.
        why: &'static str,
    },
    /// A hold was lost: give up its work at once, and drop the guard. It comes only for a hold
    /// whose `Assigned` came before: what is lost on its way here is not seen at all. The guard
    /// may be dropped already when it comes, because work can end by itself meanwhile; then there
    /// is nothing to do. [`Guard::lost`] may wake before it: that one needs no message.
    Revoked {
        /// The hold that was lost.
        hold: Hold,
        /// Why.
        why: &'static str,
    },
    /// A wish of this process was refused.
    Refused(Problem),
    /// Others hold everything; this process waits.
    Standby {
        /// The holder, if the group has one duty.
        holder: Option<InstanceId>,
    },
    /// The membership has ended: as it was asked to, or because it must not go on. The last event.
    Ended(Result<(), Problem>),
}

/// A member of a group. [`Membership::next`] tells what happens; [`Membership::run`] does the rest.
///
/// Dropping it leaves in the background: the work is asked to come to its end, what is held is
/// given back. A process that ends at once should wait for [`Membership::leave`] instead; else the
/// others wait for the TTL.
#[derive(Debug)]
pub struct Membership {
    inbox: Arc<EventQueue>,
    leaver: LeaveHandle,
    group: GroupName,
    instance: InstanceId,
}

/// Ends a membership from elsewhere, for instance when a signal comes, or has it give way.
#[derive(Clone, Debug)]
pub struct LeaveHandle(DriverHandle);

impl LeaveHandle {
    /// Stop, give everything back and go.
    pub fn leave(&self) {
        self.send(DriverCommand::Leave);
    }

    /// Hand everything over and go; refused ([`tenure_core::Code::LastMember`]) while nobody else
    /// is there to take it.
    pub fn drain(&self) {
        self.send(DriverCommand::Drain);
    }

    /// The work on every duty fails here: for so long, hand over to members whose work does not.
    /// Where there are none, nothing is handed over. Zero takes it back.
    pub fn failing(&self, rest: Duration) {
        self.send(DriverCommand::Failing { rest });
    }

    fn send(&self, command: DriverCommand) {
        // A driver that is gone has left already.
        let _ = self.0.commands.send(command);
    }
}

impl Membership {
    pub(crate) fn new(
        inbox: Arc<EventQueue>,
        desk: DriverHandle,
        group: GroupName,
        instance: InstanceId,
    ) -> Self {
        Self { inbox, leaver: LeaveHandle(desk), group, instance }
    }

    /// The group.
    pub fn group(&self) -> &GroupName {
        &self.group
    }

    /// Returns the instance id of this member.
    pub fn instance(&self) -> &InstanceId {
        &self.instance
    }

    /// Returns the next event, or `None` after [`MembershipEvent::Ended`]. Cancel safe: dropping
    /// the future loses nothing.
    pub async fn next(&mut self) -> Option<MembershipEvent> {
        self.inbox.next().await
    }

    /// A handle that ends this membership from elsewhere.
    pub fn leaver(&self) -> LeaveHandle {
        self.leaver.clone()
    }

    /// Stops, gives everything back, and waits until that is done. Guards that are still there are
    /// asked to come to their end, and are revoked when they take too long.
    pub async fn leave(mut self) -> Result<(), StoreError> {
        self.leaver.leave();
        loop {
            match self.next().await {
                Some(MembershipEvent::Ended(end)) => return end.map_err(StoreError::Refused),
                None => return Ok(()),
                // A guard that comes now is dropped, which gives its duty back.
                Some(_) => {}
            }
        }
    }

    /// Runs `work` once for each duty that is assigned, as a task of its own, until the membership
    /// ends. The task is dropped when the hold is lost, in time before the TTL ends, also when the
    /// thread that renews is stuck; it should end by itself after [`Guard::stopping`]. An error and
    /// a panic mean that the work failed: it is tried again, here or elsewhere.
    pub async fn run<F, Fut, E>(self, work: F) -> Result<(), StoreError>
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
                event = self.inbox.next() => match event {
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
        end.map_err(StoreError::Refused)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.leaver.leave();
        self.inbox.close();
    }
}

/// Reports the outcome of the work when it is dropped, also after a panic or when its runtime ends.
struct FinishOnDrop {
    guard: Guard,
    how: WorkOutcome,
}

impl Drop for FinishOnDrop {
    fn drop(&mut self) {
        self.guard.finished(if std::thread::panicking() { WorkOutcome::Failed } else { self.how });
    }
}

async fn attend<F, Fut, E>(guard: Guard, work: Arc<F>, desk: DriverHandle)
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
    finish.how = match result {
        Ok(()) if guard.draining() => WorkOutcome::Asked,
        Ok(()) => WorkOutcome::Done,
        Err(error) => {
            let (duty, epoch) = (guard.duty(), guard.epoch());
            desk.observer.work_failed(&duty.group, &duty.id, epoch, &error.to_string());
            WorkOutcome::Failed
        }
    };
}

/// Events on their way to user code.
///
/// It needs no limit of its own: a hold has at most one `Assigned`, one `Stopping` and one
/// `Revoked` in it, because a duty is not granted again before its guard was dropped; of the other
/// kinds only the newest is kept.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    queue: Mutex<QueueState>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    events: VecDeque<MembershipEvent>,
    /// Nobody reads any more.
    closed: bool,
    /// Nothing comes any more.
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
            drop(queue);
            // The guard of an assignment gives it back when it is dropped, outside of the lock.
            drop(event);
            return;
        }
        let single = matches!(event, MembershipEvent::Standby { .. } | MembershipEvent::Refused(_));
        if single {
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

    /// The next event that still matters: what was lost before anybody saw it never happened.
    fn pop(&self) -> Option<MembershipEvent> {
        loop {
            let event = self.lock().events.pop_front()?;
            match &event {
                MembershipEvent::Assigned(guard) if !guard.tenancy().take() => {}
                _ => return Some(event),
            }
        }
    }

    fn close(&self) {
        let waiting = {
            let mut queue = self.lock();
            queue.closed = true;
            std::mem::take(&mut queue.events)
        };
        drop(waiting);
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
