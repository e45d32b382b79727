//! `tenure poll`: a command once per target and interval, each target on one instance.

mod fitness;
mod pool;
mod schedule;
mod target;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Signal, getpid, set_child_subreaper};
use tenure_core::text::span;
use tenure_core::{GroupName, StoreError, Ttl};
use tenure_duty::{Duties, LeaveHandle, MembershipEvent};
use tenure_store::StoreUrl;
use tenure_targets::TargetsUrl;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::args::{self, name};
use crate::failure::Failure;
use crate::guard::reap_all;
use crate::member::{self, Started, Watchers, within};
use crate::observe::Notes;
use crate::signals::{Signals, ends};

use fitness::Fitness;
use pool::Pool;

/// The limits of intervals.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Each poll has a process of its own, and a guard.
const MOST_JOBS: usize = 10_000;

/// What is polled, and how.
#[derive(Debug)]
pub(crate) struct Settings {
    store: StoreUrl,
    targets: TargetsUrl,
    group: GroupName,
    /// Foreign instances may change the leases of this group by themselves.
    shared: bool,
    every: Duration,
    timeout: Duration,
    list_every: Duration,
    jobs: usize,
    member: member::Settings,
    command: Vec<OsString>,
}

impl Settings {
    pub(crate) fn new(poll: &args::Poll, store: StoreUrl) -> Result<Self, Failure> {
        let member = member::Settings::new(&poll.member)?;
        let (ttl, timeout) = (member.ttl, poll.timeout);
        within("--every", poll.every, SHORTEST, LONGEST)?;
        within("--list-every", poll.list_every, SHORTEST, LONGEST)?;
        // More does not fit into any TTL.
        within("--timeout", timeout, SHORTEST, Ttl::MAX_TTL / 2)?;
        within("--jobs", poll.jobs, 1, MOST_JOBS)?;
        let needed = (timeout + member.grace + ttl.margin()) * 2;
        if needed > ttl.get() {
            return Err(Failure::Usage(format!(
                "a poll of up to {} needs a --ttl of at least {}: twice the timeout, the grace \
                 and a margin, so that enough is left of a hold at any time",
                span(timeout),
                span(needed),
            )));
        }
        let group = name(&poll.group, GroupName::unescape)?;
        Ok(Self {
            shared: store.is_shared(&group),
            store,
            targets: TargetsUrl::parse(&poll.targets)?,
            group,
            every: poll.every,
            timeout,
            list_every: poll.list_every,
            jobs: poll.jobs,
            member,
            command: poll.command.clone(),
        })
    }

    /// The command for one target: `{}` becomes its id. No shell has a part in it.
    fn argv(&self, target: &str) -> Vec<OsString> {
        self.command.iter().map(|word| filled_in(word, target)).collect()
    }
}

fn filled_in(word: &OsStr, target: &str) -> OsString {
    let (mut filled, mut rest) = (Vec::new(), word.as_bytes());
    while let Some(at) = rest.windows(2).position(|two| two == b"{}") {
        filled.extend_from_slice(&rest[..at]);
        filled.extend_from_slice(target.as_bytes());
        rest = &rest[at + 2..];
    }
    filled.extend_from_slice(rest);
    OsString::from_vec(filled)
}

/// What all targets share.
#[derive(Debug)]
struct Shared {
    settings: Settings,
    pool: Pool,
    permits: Semaphore,
    notes: Notes,
    fitness: Fitness,
    membership: LeaveHandle,
    /// This process is to end.
    leaving: watch::Sender<bool>,
}

impl Shared {
    async fn leaving(&self) {
        // Its sender is here.
        let _ = self.leaving.subscribe().wait_for(|leaving| *leaving).await;
    }
}

/// Polls until it is asked to end.
pub(crate) async fn run(settings: Settings) -> Result<(), Failure> {
    let watchers = settings.member.watch(&settings.group)?;
    let ran = poll(settings, &watchers).await;
    watchers.handle.finish();
    ran
}

async fn poll(settings: Settings, watchers: &Watchers) -> Result<(), Failure> {
    let mut signals = Signals::listen().context("cannot listen to signals")?;
    // When a guard dies, what it had comes to this process.
    set_child_subreaper(Some(getpid())).map_err(io::Error::from).context("no subreaper")?;
    let Settings { store, targets, group, list_every, member, .. } = &settings;
    let pool = Pool::new(member.isolate);
    // Whether there can be a guard is known before anything is claimed.
    let (guard, _) = pool.take().await?;
    pool.give_back(guard);
    let duties = Duties::Targets { source: targets.open(), every: *list_every };
    let join = member.join(store, group.clone(), duties, watchers, true);
    let mut membership = match member::start(join, &mut signals, leaves).await? {
        Started::Member(membership) => membership,
        Started::Asked(_) => return Ok(()),
    };
    let shared = Arc::new(Shared {
        pool,
        permits: Semaphore::new(settings.jobs),
        notes: watchers.handle.notes(),
        fitness: Fitness::new(settings.every),
        membership: membership.leaver(),
        leaving: watch::Sender::new(false),
        settings,
    });
    let mut tasks = JoinSet::new();
    let end = loop {
        tokio::select! {
            biased;
            signal = signals.next() => match signal {
                Signal::CHILD => reap_all(),
                signal if leaves(signal) => {
                    shared.leaving.send_replace(true);
                    membership.leaver().leave();
                }
                _ => {}
            },
            event = membership.next() => match event {
                Some(MembershipEvent::Assigned(hold)) => {
                    tasks.spawn(target::attend(Arc::clone(&shared), hold));
                }
                Some(MembershipEvent::Ended(end)) => break end,
                None => break Ok(()),
                Some(_) => {}
            },
            Some(_) = tasks.join_next() => {}
        }
    };
    // Every hold has ended by now, so every poll does.
    while tasks.join_next().await.is_some() {}
    end.map_err(|problem| StoreError::Refused(problem).into())
}

/// Whether a signal asks this process to end.
fn leaves(signal: Signal) -> bool {
    ends(signal) && ![Signal::USR1, Signal::USR2].contains(&signal)
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
            assert_eq!(filled_in(OsStr::new(word), "a{}b"), expected);
        }
    }
}
