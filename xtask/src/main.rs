//! The tasks of a developer, run as `cargo xtask <command>`.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a terminal program that times its steps by the local clock"
)]

mod check;
mod command;
mod compare;
mod fresh;
mod fuzz;
mod jobs;
mod kill;
mod openapi;
mod programs;
mod python;
mod run;
mod servers;
mod soak;
mod suites;
mod test;
mod tidy;

use std::env;
use std::process::ExitCode;

use crate::command::{USAGE, XtaskCommand};

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let Some(command) = XtaskCommand::parse(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
