//! The terminal, lent to the command while it runs.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::signal::{SigSet, SigmaskHow, Signal as Blocked};
use rustix::process::{Pid, Signal, getpgrp, kill_current_process_group, test_kill_process_group};
use rustix::termios::{
    OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp,
};

/// The terminal that this process was started from.
pub(crate) struct Terminal {
    tty: OwnedFd,
    /// This process's group.
    ours: Pid,
    /// The group that has it now, and how it was set before.
    lent: Option<(Pid, Option<Termios>)>,
}

impl Terminal {
    /// The controlling terminal, if it is one of the standard streams.
    pub(crate) fn find() -> Option<Self> {
        let (input, output, error) = (io::stdin(), io::stdout(), io::stderr());
        let streams = [input.as_fd(), output.as_fd(), error.as_fd()];
        let tty = streams.into_iter().find(|fd| isatty(fd) && tcgetpgrp(fd).is_ok())?;
        let tty = tty.try_clone_to_owned().ok()?;
        Some(Self { tty, ours: getpgrp(), lent: None })
    }

    /// Makes a command's group the foreground, if this process is there.
    pub(crate) fn lend(&mut self, group: Pid) {
        if tcgetpgrp(&self.tty) == Ok(self.ours) {
            let before = tcgetattr(&self.tty).ok();
            if unstopped(|| tcsetpgrp(&self.tty, group)).is_ok() {
                self.lent = Some((group, before));
            }
        }
    }

    /// Takes the terminal back from the command. A shell that took it meanwhile keeps it.
    pub(crate) fn take_back(&mut self, restore: bool) {
        let Some((group, before)) = self.lent.take() else { return };
        let theirs = tcgetpgrp(&self.tty);
        let forsaken =
            theirs.is_ok_and(|now| now == group || test_kill_process_group(now).is_err());
        if !forsaken || unstopped(|| tcsetpgrp(&self.tty, self.ours)).is_err() {
            return;
        }
        if let (true, Some(before)) = (restore, before) {
            // A command that was killed did not put it back.
            let _ = unstopped(|| tcsetattr(&self.tty, OptionalActions::Drain, &before));
        }
    }

    /// Whether a command of this group would be stopped for using the terminal.
    pub(crate) fn is_lent_to(&self, group: Pid) -> bool {
        tcgetpgrp(&self.tty) == Ok(group)
    }

    /// Stops this process as the terminal would have, with the others of its group: so the shell
    /// sees that its job was stopped. Returns when it goes on.
    pub(crate) fn stop_here() {
        // This is the main thread, which takes signals to the process first: it stops in here.
        let _ = kill_current_process_group(Signal::TSTP);
    }
}

/// Who takes the terminal back is not in its foreground, and would be stopped for it. The signal is
/// blocked only meanwhile: what this process starts would inherit that.
fn unstopped<T>(change: impl FnOnce() -> T) -> T {
    let mut blocked = SigSet::empty();
    blocked.add(Blocked::SIGTTOU);
    let before = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let changed = change();
    if let Ok(before) = before {
        // It refuses only what is no set.
        let _ = before.thread_set_mask();
    }
    changed
}
