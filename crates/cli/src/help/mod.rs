//! Examples in help texts, manual pages and the command reference.

#[cfg(test)]
mod tests;

use std::ffi::OsString;

use clap::{Arg, Command, CommandFactory, value_parser};

use crate::args::Args;
use crate::env;

/// Examples by command: `[NAME]`, then command lines with their purpose.
const EXAMPLES: &str = include_str!("examples.txt");

/// Id of `--config`, which the commands have that do not use this name for an option of their own.
pub(crate) const CONFIG_ID: &str = "config_file";

/// Returns the definition of the arguments, with `--config`, the variables of `serve` and examples.
pub(crate) fn command() -> Command {
    with_examples(Args::command(), "tenure")
}

/// Option of every command. clap's global options cannot yield to one of the same name.
pub(crate) fn with_config(command: Command) -> Command {
    let is_taken = command.get_arguments().any(|arg| arg.get_long() == Some("config"));
    if is_taken || command.is_hide_set() {
        return command;
    }
    let config = Arg::new(CONFIG_ID).long("config").value_name("FILE").env(env::CONFIG);
    command.arg(
        config
            .value_parser(value_parser!(OsString))
            .help_heading("Global options")
            .display_order(usize::MAX)
            .help("Configuration file; none if empty [default: tenure.toml]"),
    )
}

fn with_examples(command: Command, name: &str) -> Command {
    let lines: String = examples(name).lines().map(|line| format!("  {line}\n")).collect();
    let mut help = format!("Examples:\n{lines}");
    if let Some(notes) = command.get_after_help() {
        help = format!("{help}\n{notes}");
    }
    let command = if command.is_hide_set() { command } else { command.after_help(help) };
    let command = with_config(command);
    // A variable may hold a secret.
    let command = command.mut_args(|arg| arg.hide_env_values(true));
    let command = match name {
        // They stand also behind its subcommands.
        "tenure checkpoint" => command.mut_args(|arg| match arg.get_help_heading() {
            Some("Keys") => arg.global(true),
            _ => arg,
        }),
        "tenure serve" => command.mut_args(|arg| match env::of_serve(arg.get_id().as_str()) {
            Some(variable) => arg.env(variable),
            None => arg,
        }),
        _ => command,
    };
    command.mut_subcommands(|child| {
        let name = format!("{name} {}", child.get_name());
        with_examples(child, &name)
    })
}

/// Returns the examples of a command, by its full name.
fn examples(name: &str) -> &'static str {
    let start = format!("[{name}]\n");
    let found = EXAMPLES.split("\n\n").find_map(|section| section.strip_prefix(&start));
    found.unwrap_or_default().trim_end()
}
