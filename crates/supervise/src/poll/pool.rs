//! Pool of guards for polls.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::Pid;
use tenure_core::{Code, StoreError};

use crate::guard::{GuardOptions, GuardProcess};
use crate::process_tree::{KillBackoff, kill_strays, reap_all};

/// Guards, one per concurrent poll: processes that a command leaves behind belong to one poll.
#[derive(Debug)]
pub(super) struct GuardPool {
    options: GuardOptions,
    idle: Mutex<Vec<GuardProcess>>,
    /// Process ids of all guards.
    known: Mutex<BTreeSet<i32>>,
    polls: AtomicU64,
}

impl GuardPool {
    pub(super) fn new(options: GuardOptions) -> Self {
        let (idle, known) = (Mutex::default(), Mutex::default());
        Self { options, idle, known, polls: AtomicU64::new(0) }
    }

    /// Returns an idle guard, and an id for its next command.
    pub(super) async fn take(&self) -> Result<(GuardProcess, u64), StoreError> {
        let id = self.polls.fetch_add(1, Ordering::Relaxed);
        while let Some(guard) = lock(&self.idle).pop() {
            if !guard.is_gone() {
                return Ok((guard, id));
            }
            // The guard was idle, so it has left no processes behind.
            lock(&self.known).remove(&guard.pid().as_raw_pid());
        }
        let mut guard = self.start().map_err(|error| {
            StoreError::refused(Code::Machine, format!("cannot start the guard: {error}"))
        })?;
        guard.ready().await?;
        Ok((guard, id))
    }

    fn start(&self) -> io::Result<GuardProcess> {
        // Started under the lock: an unknown guard could be killed as a stray.
        let mut known = lock(&self.known);
        let guard = GuardProcess::start(&self.options)?;
        known.insert(guard.pid().as_raw_pid());
        Ok(guard)
    }

    /// Takes back a guard whose command has ended.
    pub(super) fn give_back(&self, guard: GuardProcess) {
        lock(&self.idle).push(guard);
    }

    /// Kills a guard that has died or hangs, and waits until all of its processes have ended. A
    /// process that cannot be ended is passed to `survivor` once.
    pub(super) async fn discard(&self, guard: GuardProcess, survivor: impl Fn(Pid)) {
        guard.kill();
        lock(&self.known).remove(&guard.pid().as_raw_pid());
        drop(guard);
        let (mut backoff, mut warned) = (KillBackoff::new(), false);
        while let Some(pid) = self.kill_strays() {
            if backoff.is_stuck() && !std::mem::replace(&mut warned, true) {
                survivor(pid);
            }
            tokio::time::sleep(backoff.next()).await;
            reap_all();
        }
    }

    fn kill_strays(&self) -> Option<Pid> {
        let known = lock(&self.known);
        let guards: Vec<Pid> = known.iter().filter_map(|pid| Pid::from_raw(*pid)).collect();
        kill_strays(&guards)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A collection is consistent at any time, also after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
