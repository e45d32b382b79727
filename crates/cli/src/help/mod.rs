//! Examples in help texts, manual pages and the command reference.

#[cfg(test)]
mod tests;

use clap::{Command, CommandFactory};

use crate::args::Args;
use crate::env;

/// Examples by command: `[NAME]`, then command lines with their purpose.
const EXAMPLES: &str = include_str!("examples.txt");

/// Returns the definition of the arguments, with the variables of `serve` and with examples.
pub(crate) fn command() -> Command {
    with_examples(Args::command(), "tenure")
}

fn with_examples(command: Command, name: &str) -> Command {
    let lines: String = examples(name).lines().map(|line| format!("  {line}\n")).collect();
    let mut help = format!("Examples:\n{lines}");
    if let Some(notes) = command.get_after_help() {
        help = format!("{help}\n{notes}");
    }
    let command = if command.is_hide_set() { command } else { command.after_help(help) };
    // A variable may hold a secret.
    let command = command.mut_args(|arg| arg.hide_env_values(true));
    let command = match name {
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
