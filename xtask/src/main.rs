//! The tasks of a developer, run as `cargo xtask <command>`.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a terminal program that times its steps by the local clock"
)]

mod command;
mod compare;
mod fresh;
mod fuzz;
mod kill;
mod openapi;
mod python;
mod run;
mod servers;
mod soak;
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
