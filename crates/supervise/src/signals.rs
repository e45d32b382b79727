//! Signals to this process.

use std::fs;
use std::io;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Signals that are passed on to a command.
pub(crate) const FORWARDED: [Signal; 7] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
];

/// Whether a signal asks this process to end while no command runs.
pub fn is_stop(signal: Signal) -> bool {
    ![Signal::WINCH, Signal::CONT, Signal::CHILD].contains(&signal)
}

/// Stream of signals: HUP, INT, QUIT, TERM, USR1, USR2, WINCH, CONT and CHLD.
#[derive(Debug)]
pub struct Signals(mpsc::Receiver<Signal>);

impl Signals {
    /// Handles these signals from now on. A signal that this process was started to ignore, as by
    /// nohup(1), stays ignored, also by its commands.
    pub fn listen() -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel(16);
        let all = FORWARDED.into_iter().chain([Signal::CONT, Signal::CHILD]);
        for kind in all.filter(|kind| !is_ignored(*kind)) {
            let mut arriving = signal(SignalKind::from_raw(kind.as_raw()))?;
            let sender = sender.clone();
            tokio::spawn(async move {
                while arriving.recv().await.is_some() && sender.send(kind).await.is_ok() {}
            });
        }
        Ok(Self(receiver))
    }

    /// Waits for the next signal. Cancellation-safe.
    pub async fn next(&mut self) -> Signal {
        match self.0.recv().await {
            Some(signal) => signal,
            // The tasks that send never end.
            None => std::future::pending().await,
        }
    }
}

/// Whether this process was started with a signal ignored.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal.as_raw() - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtime_of_rust_ignores_a_broken_pipe_and_no_more() {
        assert!(is_ignored(Signal::PIPE));
        assert!(!is_ignored(Signal::TERM));
    }
}
