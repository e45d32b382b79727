//! `tenure guard`: the hidden command that `run` and `poll` start.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ValueEnum;
use tenure_supervise::guard::{Init, Stage};

/// Arguments that one stage passes to the next.
#[derive(clap::Args)]
pub(crate) struct GuardArgs {
    /// Run a guard in a new PID namespace
    #[arg(long)]
    isolate: bool,
    /// Run as the guard in that namespace
    #[arg(long, value_enum)]
    init: Option<InitArg>,
    /// Execute the command; end when the guard with this process id ends
    #[arg(long, value_name = "PID")]
    exec: Option<i32>,
    /// Folder to remove at exit
    scratch: Option<PathBuf>,
    /// Command for --exec
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
