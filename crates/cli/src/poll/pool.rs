//! Guards that wait for the next poll.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::Pid;
use tenure_core::{Code, StoreError};

use crate::guard::{Guard, Input, Pauses, kill_strays, reap_all};

/// One guard for each poll at a time: so what a command leaves behind belongs to one poll.
#[derive(Debug)]
pub(super) struct Pool {
    isolate: bool,
    idle: Mutex<Vec<Guard>>,
    /// The process ids of all guards.
    known: Mutex<BTreeSet<i32>>,
    polls: AtomicU64,
}

impl Pool {
    pub(super) fn new(isolate: bool) -> Self {
        let (idle, known) = (Mutex::default(), Mutex::default());
        Self { isolate, idle, known, polls: AtomicU64::new(0) }
    }

    /// A guard that has nothing to do, and a name for what it will do.
    pub(super) async fn take(&self) -> Result<(Guard, u64), StoreError> {
        let id = self.polls.fetch_add(1, Ordering::Relaxed);
        while let Some(guard) = lock(&self.idle).pop() {
            if !guard.is_gone() {
                return Ok((guard, id));
            }
            // It had nothing to do, so nothing is left of it.
            lock(&self.known).remove(&guard.pid().as_raw_pid());
        }
        let mut guard = self.start().map_err(|error| {
            StoreError::refused(Code::Machine, format!("cannot start the guard: {error}"))
        })?;
        guard.ready().await?;
        Ok((guard, id))
    }

    fn start(&self) -> io::Result<Guard> {
        // Under the lock: nobody must take it for a stray before it is known.
        let mut known = lock(&self.known);
        let guard = Guard::start(Input::Nothing, None, self.isolate)?;
        known.insert(guard.pid().as_raw_pid());
        Ok(guard)
    }

    /// Takes a guard back whose command has ended.
    pub(super) fn give_back(&self, guard: Guard) {
        lock(&self.idle).push(guard);
    }

    /// A guard has died, or does nothing: kills it, and whatever it had. What cannot be ended is
    /// told to `remains`, once, and waited for.
    pub(super) async fn bury(&self, guard: Guard, remains: impl Fn(Pid)) {
        guard.kill();
        lock(&self.known).remove(&guard.pid().as_raw_pid());
        drop(guard);
        let (mut pauses, mut said) = (Pauses::new(), false);
        while let Some(pid) = self.kill_strays() {
            if pauses.are_long() && !std::mem::replace(&mut said, true) {
                remains(pid);
            }
            tokio::time::sleep(pauses.next()).await;
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
    // A list is whole at any time, whoever panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
