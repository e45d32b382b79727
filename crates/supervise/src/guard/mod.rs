//! Guard process: starts a command and ends it before the deadline of its hold.
//!
//! A guard is this same binary, started as `tenure guard` with one end of a socket pair as its
//! standard input. It runs one command at a time, and ends it on its own at the deadline, or at
//! once when the supervisor dies and the socket closes. The guard is a child subreaper: processes
//! that the command leaves behind become its children and are ended with the command. When the
//! guard is killed, the kernel kills the command; with isolation, also everything that the command
//! has started.
//!
//! Why: docs/decisions/0013-a-guard-process-starts-commands.md

mod channel;
mod client;
mod protocol;
mod server;
mod stage;
mod timer;

pub use protocol::ExitStatus;
pub use server::main;
pub use stage::{Init, Stage};

pub(crate) use client::{CommandInput, GuardOptions, GuardProcess};
pub(crate) use protocol::{EndCause, GuardEvent, GuardReport, GuardRequest, StartRequest};
pub(crate) use timer::BootTimer;
