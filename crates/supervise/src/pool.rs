//! Pool of guards for commands that run beside each other.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::Pid;
use tenure_core::{Code, StoreError};
use tenure_duty::Guard;
use tokio::sync::watch;

use crate::api::{LocalApi, ShardNumber};
use crate::command::{CommandEvent, CommandStart, CommandTiming, HeldCommand, Variables};
use crate::error::{SuperviseError, SystemContext as _};
use crate::guard::{CommandInput, EndCause, ExitStatus, GuardOptions, GuardProcess};
use crate::member::SupervisorSettings;
use crate::output::{OutputForm, OutputPrinter};
use crate::process_tree::{KillBackoff, kill_strays, reap_all, survivor};
use crate::scratch::{self, Scratch};
use crate::state::StateFile;

/// Guards, one per command at a time: processes that a command leaves behind belong to it.
#[derive(Debug)]
pub(crate) struct GuardPool {
    options: GuardOptions,
    scratch: Scratch,
    idle: Mutex<Vec<PooledGuard>>,
    /// Process ids of all guards.
    known: Mutex<BTreeSet<i32>>,
    commands: AtomicU64,
    /// Whether this process is asked to end.
    leaving: watch::Sender<bool>,
}

/// A command to run under a hold.
pub(crate) struct PooledStart<'a> {
    pub(crate) hold: &'a Guard,
    pub(crate) shard: ShardNumber,
    pub(crate) argv: Vec<OsString>,
    pub(crate) variables: &'a Variables,
    pub(crate) timing: CommandTiming,
    pub(crate) api: &'a LocalApi,
    pub(crate) state: Option<&'a StateFile>,
    /// Logs an event about the duty.
    pub(crate) log: &'a (dyn Fn(&'static str, String) + Send + Sync),
}

/// Outcome of a command.
pub(crate) struct PooledRun {
    pub(crate) end: CommandEnd,
    /// The beginning of what it printed, if this process prints it.
    pub(crate) output: String,
    /// Whether the program has asked to give the duty back.
    pub(crate) released: bool,
}

/// End of a command.
#[derive(Debug)]
pub(crate) enum CommandEnd {
    Ended(ExitStatus, EndCause),
    CannotStart(io::Error),
    /// No guard could be started.
    NoGuard(StoreError),
    /// The guard is gone; nothing of the command runs any more.
    GuardLost(String),
    /// This process is asked to end, and a process of the command cannot be ended.
    Remains,
}

/// A guard with the private folder of its commands.
#[derive(Debug)]
struct PooledGuard {
    guard: GuardProcess,
    folder: PathBuf,
}

impl Drop for PooledGuard {
    fn drop(&mut self) {
        scratch::remove_part(&self.folder);
    }
}

impl GuardPool {
    /// Starts with one guard: this fails before anything is claimed if none can be started.
    pub(crate) async fn start(
        member: &SupervisorSettings,
        output: OutputForm,
        scratch: Scratch,
    ) -> Result<Self, SuperviseError> {
        let printer = match output {
            OutputForm::Labelled => {
                Some(OutputPrinter::start().context("cannot start the output thread")?)
            }
            OutputForm::Inherited => None,
        };
        let options = GuardOptions { printer, ..member.guard(CommandInput::Null, None) };
        let (idle, known) = (Mutex::default(), Mutex::default());
        let (commands, leaving) = (AtomicU64::new(0), watch::Sender::new(false));
        let pool = Self { options, scratch, idle, known, commands, leaving };
        let (guard, _) = pool.take().await?;
        pool.give_back(guard);
        Ok(pool)
    }

    /// This process is asked to end: from now on, nothing waits for a process that cannot be ended.
    pub(crate) fn leave(&self) {
        self.leaving.send_replace(true);
    }

    /// Runs a command until nothing of it runs any more.
    pub(crate) async fn run(&self, start: PooledStart<'_>) -> PooledRun {
        let bare = |end| PooledRun { end, output: String::new(), released: false };
        let (mut pooled, id) = match self.take().await {
            Ok(taken) => taken,
            Err(error) => return bare(CommandEnd::NoGuard(error)),
        };
        let PooledStart { hold, shard, argv, variables, timing, api, state, log } = start;
        if let Some(output) = pooled.guard.output() {
            output.begin(&hold.duty().id.to_string());
        }
        let folder = &pooled.folder;
        let start = CommandStart { id, hold, shard, argv, variables, timing, folder, api, state };
        let mut command = match HeldCommand::start(start, &mut pooled.guard).await {
            Ok(command) => command,
            Err(what) => return bare(self.discard(pooled, what, hold, log).await),
        };
        let end = self.watch(&mut command, &mut pooled.guard, hold, log).await;
        let (end, status) = match end {
            CommandEnd::GuardLost(what) => (self.discard(pooled, what, hold, log).await, None),
            // The guard is dropped, and keeps trying.
            CommandEnd::Remains => (CommandEnd::Remains, None),
            end => {
                let output = match pooled.guard.output() {
                    Some(output) => output.end().await,
                    None => String::new(),
                };
                self.give_back(pooled);
                let status =
                    if let CommandEnd::Ended(status, _) = &end { Some(*status) } else { None };
                return PooledRun { end, output, released: command.finish(status).await };
            }
        };
        let released = command.finish(status).await;
        PooledRun { end, output: String::new(), released }
    }

    async fn watch(
        &self,
        command: &mut HeldCommand,
        guard: &mut GuardProcess,
        hold: &Guard,
        log: &(dyn Fn(&'static str, String) + Send + Sync),
    ) -> CommandEnd {
        loop {
            let stuck = command.survivor().is_some();
            let wake = tokio::select! {
                biased;
                () = self.out_of_time(hold), if stuck => return CommandEnd::Remains,
                wake = command.wait(guard) => wake,
            };
            match command.handle(guard, wake).await {
                Some(CommandEvent::Ended(status, cause)) => {
                    return CommandEnd::Ended(status, cause);
                }
                Some(CommandEvent::CannotStart(error)) => return CommandEnd::CannotStart(error),
                Some(CommandEvent::GuardFailed(what)) => return CommandEnd::GuardLost(what),
                Some(CommandEvent::Remains(pid)) => log("not_ended", survivor_text(pid)),
                Some(CommandEvent::Unwritten(error)) => {
                    log("deadline_unwritten", error.to_string());
                }
                Some(CommandEvent::Started(_) | CommandEvent::Stopped(_)) | None => {}
            }
        }
    }

    /// Waits until this process is asked to end and the hold is lost.
    async fn out_of_time(&self, hold: &Guard) {
        // Cannot fail: `self` keeps the sender.
        let _ = self.leaving.subscribe().wait_for(|leaving| *leaving).await;
        hold.lost().await;
    }

    /// Returns an idle guard, and an id for its next command.
    async fn take(&self) -> Result<(PooledGuard, u64), StoreError> {
        let id = self.commands.fetch_add(1, Ordering::Relaxed);
        while let Some(idle) = lock(&self.idle).pop() {
            if !idle.guard.is_gone() {
                return Ok((idle, id));
            }
            // The guard was idle, so it has left no processes behind.
            lock(&self.known).remove(&idle.guard.pid().as_raw_pid());
        }
        let mut guard = self.start_guard().map_err(|error| {
            StoreError::refused(Code::Machine, format!("cannot start the guard: {error}"))
        })?;
        guard.guard.ready().await?;
        Ok((guard, id))
    }

    fn start_guard(&self) -> io::Result<PooledGuard> {
        let folder = self.scratch.part()?;
        let options = GuardOptions { scratch: Some(folder.clone()), ..self.options.clone() };
        // Started under the lock: an unknown guard could be killed as a stray.
        let mut known = lock(&self.known);
        let guard = GuardProcess::start(&options)?;
        known.insert(guard.pid().as_raw_pid());
        Ok(PooledGuard { guard, folder })
    }

    /// Takes back a guard whose command has ended.
    fn give_back(&self, guard: PooledGuard) {
        lock(&self.idle).push(guard);
    }

    /// Kills a guard that has died or hangs, and waits until all of its processes have ended. A
    /// process that cannot be ended is logged once.
    async fn discard(
        &self,
        discarded: PooledGuard,
        what: String,
        hold: &Guard,
        log: &(dyn Fn(&'static str, String) + Send + Sync),
    ) -> CommandEnd {
        discarded.guard.kill();
        lock(&self.known).remove(&discarded.guard.pid().as_raw_pid());
        drop(discarded);
        let killed = async {
            let (mut backoff, mut warned) = (KillBackoff::new(), false);
            while let Some(pid) = self.kill_strays() {
                if backoff.is_stuck() && !std::mem::replace(&mut warned, true) {
                    log("not_ended", survivor_text(pid));
                }
                tokio::time::sleep(backoff.next()).await;
                reap_all();
            }
        };
        tokio::select! {
            biased;
            () = killed => CommandEnd::GuardLost(what),
            () = self.out_of_time(hold) => CommandEnd::Remains,
        }
    }

    fn kill_strays(&self) -> Option<Pid> {
        let known = lock(&self.known);
        let guards: Vec<Pid> = known.iter().filter_map(|pid| Pid::from_raw(*pid)).collect();
        kill_strays(&guards)
    }
}

fn survivor_text(pid: Pid) -> String {
    survivor(pid.as_raw_pid(), "nothing is started for this duty until it has ended")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A collection is consistent at any time, also after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
