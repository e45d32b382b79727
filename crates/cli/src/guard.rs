//! `tenure guard`: the hidden command that `run` and `poll` start.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ValueEnum;
use tenure_supervise::guard::{Init, Stage};

/// Arguments that one stage passes to the next.
#[derive(clap::Args)]
pub(crate) struct GuardArgs {
    /// Be the parent of a guard in a PID namespace of its own
    #[arg(long)]
    isolate: bool,
    /// Be the guard in there
    #[arg(long, value_enum)]
    init: Option<InitArg>,
    /// Become the command, and go with its guard, the process of this id
    #[arg(long, value_name = "PID")]
    exec: Option<i32>,
    /// A folder to remove in the end
    scratch: Option<PathBuf>,
    /// The command of --exec
    #[arg(last = true)]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, ValueEnum)]
enum InitArg {
    Own,
    Lent,
}

impl GuardArgs {
    pub(crate) fn stage(&self) -> Stage {
        let Self { isolate, init, exec, scratch, command } = self;
        let scratch = scratch.clone();
        let init = init.map(|init| match init {
            InitArg::Own => Init::Own,
            InitArg::Lent => Init::Lent,
        });
        match exec {
            Some(parent) => Stage::Exec { parent: *parent, command: command.clone() },
            None if *isolate => Stage::Isolate { scratch },
            None => Stage::Guard { init, scratch },
        }
    }
}
