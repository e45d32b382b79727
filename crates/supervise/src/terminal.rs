//! Terminal job control: the command is in the foreground while it runs.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::signal::{SigSet, SigmaskHow, Signal as Blocked};
use rustix::process::{Pid, Signal, getpgrp, kill_current_process_group, test_kill_process_group};
use rustix::termios::{
    OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp,
};

/// The controlling terminal of this process.
pub(crate) struct Terminal {
    tty: OwnedFd,
    ours: Pid,
    /// The command's group, while it is in the foreground, and the terminal settings before that.
    lent: Option<(Pid, Option<Termios>)>,
}

impl Terminal {
    /// Finds the controlling terminal among the standard streams.
    pub(crate) fn find() -> Option<Self> {
        let (input, output, error) = (io::stdin(), io::stdout(), io::stderr());
        let streams = [input.as_fd(), output.as_fd(), error.as_fd()];
        let tty = streams.into_iter().find(|fd| isatty(fd) && tcgetpgrp(fd).is_ok())?;
        let tty = tty.try_clone_to_owned().ok()?;
        Some(Self { tty, ours: getpgrp(), lent: None })
    }

    /// Moves a command's group to the foreground, if this process is in the foreground.
    pub(crate) fn lend(&mut self, group: Pid) {
        if tcgetpgrp(&self.tty) == Ok(self.ours) {
            let before = tcgetattr(&self.tty).ok();
            if with_ttou_blocked(|| tcsetpgrp(&self.tty, group)).is_ok() {
                self.lent = Some((group, before));
            }
        }
    }

    /// Moves this process back to the foreground, unless a shell has taken the terminal meanwhile.
    pub(crate) fn take_back(&mut self, restore: bool) {
        let Some((group, before)) = self.lent.take() else { return };
        let foreground = tcgetpgrp(&self.tty);
        let abandoned =
            foreground.is_ok_and(|now| now == group || test_kill_process_group(now).is_err());
        if !abandoned || with_ttou_blocked(|| tcsetpgrp(&self.tty, self.ours)).is_err() {
            return;
        }
        if let (true, Some(before)) = (restore, before) {
            // A killed command did not restore the settings.
            let _ = with_ttou_blocked(|| tcsetattr(&self.tty, OptionalActions::Drain, &before));
        }
    }

    /// Whether a group is in the foreground.
    pub(crate) fn is_lent_to(&self, group: Pid) -> bool {
        tcgetpgrp(&self.tty) == Ok(group)
    }

    /// Stops the group of this process as the terminal would, so that the shell sees a stopped job.
    /// Returns when it is continued.
    pub(crate) fn stop_here() {
        // The main thread receives signals to the process first, so it stops here.
        let _ = kill_current_process_group(Signal::TSTP);
    }
}

/// Runs `change` with TTOU blocked: a background process that changes a terminal would be stopped.
/// The mask is restored afterwards, because children inherit it.
fn with_ttou_blocked<T>(change: impl FnOnce() -> T) -> T {
    let mut blocked = SigSet::empty();
    blocked.add(Blocked::SIGTTOU);
    let before = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let changed = change();
    if let Ok(before) = before {
        // It fails only for an invalid set.
        let _ = before.thread_set_mask();
    }
    changed
}
