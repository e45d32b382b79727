//! The guard: a small process that starts a user's command and ends it in time, whatever becomes of
//! the process that holds the duty.
//!
//! It is this same binary, started as `tenure guard` with one end of a socket pair as its standard
//! input. It runs one command at a time and is the parent of it: it is told the deadline of the
//! hold ahead of time, so it needs nobody to end the command when the deadline comes. When its own
//! parent dies the socket comes to its end, and the guard ends the command at once. Whatever the
//! command leaves behind comes to the guard too (it is a child subreaper), and is ended with it:
//! so everything below a guard belongs to one command. When the guard is killed, the kernel kills
//! the command; with `--isolate` also everything that it has started.

mod link;
mod stage;
mod told;
mod tree;
mod watch;
mod words;

pub(crate) use link::Input;
pub(crate) use stage::{Args, Stage};
pub(crate) use told::{BootTimer, Guard};
pub(crate) use tree::{Pauses, kill_strays, look, proc_is_ours, reap_all};
pub(crate) use watch::main;
pub(crate) use words::{End, Order, Report, Start, Why};
