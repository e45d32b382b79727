//! Runs a command once per target and interval, each target on one instance.

mod backoff;
mod pool;
mod schedule;
mod target;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tenure_core::text::span;
use tenure_core::{BoxFuture, GroupName, Targets};
use tenure_duty::{Duties, DutyError, LeaveHandle, MembershipEvent};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::error::SuperviseError;
use crate::guard::CommandInput;
use crate::member::{self, SupervisorSettings};
use crate::observe::{Observation, Recorder};
use crate::process_tree::reap_all;
use crate::signals::is_stop;

use backoff::PollBackoff;
use pool::GuardPool;

/// Targets and the command that polls them.
#[derive(Clone)]
pub struct PollSettings {
    /// List of targets.
    pub targets: Arc<dyn Targets>,
    /// Group of the instances that share the targets.
    pub group: GroupName,
    /// Membership in the group.
    pub member: SupervisorSettings,
    /// Interval between polls of one target.
    pub every: Duration,
    /// Time that a poll may take.
    pub timeout: Duration,
    /// Interval between reads of the list of targets.
    pub list_every: Duration,
    /// Polls at a time.
    pub jobs: usize,
    /// The program and its arguments; `{}` in them becomes the target.
    pub command: Vec<OsString>,
}

impl fmt::Debug for PollSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("PollSettings");
        fields.field("group", &self.group).field("member", &self.member).finish_non_exhaustive()
    }
}

impl PollSettings {
    /// Refuses settings with which a poll would not fit into a hold.
    pub fn check(&self) -> Result<(), SuperviseError> {
        self.member.check()?;
        let ttl = self.member.ttl;
        let needed = (self.timeout + self.member.grace() + ttl.margin()) * 2;
        if needed <= ttl.get() {
            return Ok(());
        }
        Err(SuperviseError::Setting {
            setting: "ttl",
            problem: format!(
                "{} is too short: a poll of up to {} needs at least {}, twice the sum of timeout, \
                 grace and margin, so that a hold always has enough time left",
                span(ttl.get()),
                span(self.timeout),
                span(needed),
            ),
        })
    }

    /// Returns the command for one target: `{}` becomes its id. No shell is involved.
    fn argv(&self, target: &str) -> Vec<OsString> {
        self.command.iter().map(|word| fill_in(word, target)).collect()
    }
}

fn fill_in(word: &OsStr, target: &str) -> OsString {
    let (mut filled, mut rest) = (Vec::new(), word.as_bytes());
    while let Some(at) = rest.windows(2).position(|two| two == b"{}") {
        filled.extend([&rest[..at], target.as_bytes()].concat());
        rest = &rest[at + 2..];
    }
    filled.extend(rest);
    OsString::from_vec(filled)
}

/// State shared by all targets.
#[derive(Debug)]
struct PollContext {
    settings: PollSettings,
    /// Whether foreign instances may change the leases of the group.
    has_foreign_instances: bool,
    pool: GuardPool,
    permits: Semaphore,
    recorder: Recorder,
    backoff: PollBackoff,
    membership: LeaveHandle,
    /// Whether this process is asked to end.
    leaving: watch::Sender<bool>,
}

impl PollContext {
    async fn leaving(&self) {
        // Cannot fail: `self` keeps the sender.
        let _ = self.leaving.subscribe().wait_for(|leaving| *leaving).await;
    }
}

/// Polls until a signal asks this process to end.
pub fn poll(settings: PollSettings) -> BoxFuture<'static, Result<(), SuperviseError>> {
    Box::pin(async move {
        settings.check()?;
        let observation = settings.member.observe(&settings.group)?;
        let polled = poll_observed(settings, &observation).await;
        observation.finish();
        polled
    })
}

async fn poll_observed(
    settings: PollSettings,
    observation: &Observation,
) -> Result<(), SuperviseError> {
    let mut signals = member::listen()?;
    let PollSettings { targets, group, list_every, member, .. } = &settings;
    let pool = GuardPool::new(member.guard(CommandInput::Null, None));
    // Fails before anything is claimed if no guard can be started.
    let (guard, _) = pool.take().await?;
    pool.give_back(guard);
    let duties = Duties::Targets { source: Arc::clone(targets), every: *list_every };
    let join = member.join(group.clone(), duties, observation, true);
    let Ok(mut membership) = member::start(join, &mut signals, leaves).await? else {
        return Ok(());
    };
    let context = Arc::new(PollContext {
        pool,
        permits: Semaphore::new(settings.jobs),
        recorder: observation.recorder(),
        backoff: PollBackoff::new(settings.every),
        membership: membership.leaver(),
        leaving: watch::Sender::new(false),
        has_foreign_instances: member.store.url.is_shared(group),
        settings,
    });
    let mut tasks = JoinSet::new();
    let end = loop {
        tokio::select! {
            biased;
            signal = signals.next() => match signal {
                Signal::CHILD => reap_all(),
                signal if leaves(signal) => {
                    context.leaving.send_replace(true);
                    membership.leaver().leave();
                }
                _ => {}
            },
            event = membership.next() => match event {
                Some(MembershipEvent::Assigned(hold)) => {
                    tasks.spawn(target::poll_target(Arc::clone(&context), hold));
                }
                Some(MembershipEvent::Ended(end)) => break end,
                None => break Ok(()),
                Some(_) => {}
            },
            Some(_) = tasks.join_next() => {}
        }
    };
    // Every hold has ended by now, so every poll ends.
    while tasks.join_next().await.is_some() {}
    end.map_err(|problem| DutyError::Refused(problem).into())
}

/// Whether a signal asks this process to end.
fn leaves(signal: Signal) -> bool {
    is_stop(signal) && ![Signal::USR1, Signal::USR2].contains(&signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_become_the_target_and_nothing_else_changes() {
        for (word, expected) in [
            ("{}", "a{}b"),
            ("x{}y{}", "xa{}bya{}b"),
            ("", ""),
            ("{ }", "{ }"),
            ("{{}}", "{a{}b}"),
            ("$(id)", "$(id)"),
        ] {
            assert_eq!(fill_in(OsStr::new(word), "a{}b"), expected);
        }
    }
}
