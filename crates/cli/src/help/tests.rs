//! Examples, and the command reference in `docs/reference/cli`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Arg, Command, FromArgMatches};

use super::{CONFIG_ID, EXAMPLES, command, examples};
use crate::args::Args;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli");
const END: &str = "<!-- end -->\n";

/// Options that every command has: the index describes them.
const COMMON: [&str; 6] = ["help", "version", "store", "json", "color", CONFIG_ID];

/// Visits the visible commands.
fn walk(command: &Command, visit: &mut impl FnMut(&Command)) {
    visit(command);
    let visible = command.get_subcommands().filter(|child| !child.is_hide_set());
    visible.for_each(|child| walk(child, visit));
}

fn built() -> Command {
    let mut command = command();
    command.build();
    command
}

fn full_name(command: &Command) -> &str {
    command.get_bin_name().unwrap_or("tenure")
}

/// Splits a line into words as a shell does, up to a redirection.
fn words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let (mut quote, mut is_inside) = (None, false);
    for c in line.chars() {
        match (quote, c) {
            (None, '<' | '>' | '|') => break,
            (None, ' ') => is_inside = false,
            (None, '\'' | '"') => quote = Some(c),
            (Some(mark), c) if c == mark => quote = None,
            _ => {
                if !is_inside {
                    words.push(String::new());
                    is_inside = true;
                }
                words.last_mut().unwrap().push(c);
            }
        }
    }
    assert_eq!(quote, None, "{line}");
    words
}

#[test]
fn every_command_has_two_examples_that_parse() {
    let mut seen = BTreeSet::new();
    walk(&built(), &mut |visited| {
        let name = full_name(visited);
        seen.insert(name.to_owned());
        let help = visited.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines: Vec<&str> = help.lines().filter(|line| line.starts_with("  tenure ")).collect();
        assert_eq!(lines.len(), 2, "examples of `{name}` in crates/cli/src/help/examples.txt");
        assert_ne!(lines[0], lines[1]);
        for line in lines {
            let matches = command().try_get_matches_from(words(line));
            let matches = matches.unwrap_or_else(|error| panic!("{line}\n{error}"));
            Args::from_arg_matches(&matches).unwrap_or_else(|error| panic!("{line}\n{error}"));
            let (mut parsed, mut at) = ("tenure".to_owned(), &matches);
            while let Some((child, below)) = at.subcommand() {
                (parsed, at) = (format!("{parsed} {child}"), below);
            }
            assert!(format!("{parsed} ").starts_with(&format!("{name} ")), "{name}: {line}");
        }
    });
    let named = EXAMPLES.lines().filter_map(|line| line.strip_prefix('[')?.strip_suffix(']'));
    assert_eq!(named.map(str::to_owned).collect::<BTreeSet<_>>(), seen);
}

#[test]
fn summaries_are_imperative_and_fit_a_line() {
    walk(&built(), &mut |visited| {
        let name = full_name(visited);
        let about = visited.get_about().map(ToString::to_string).unwrap_or_default();
        assert!(!about.is_empty() && about.len() <= 80 && !about.ends_with('.'), "{name}: {about}");
        for arg in visited.get_arguments().filter(|arg| !arg.is_hide_set()) {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(!help.is_empty(), "{name} {}", arg.get_id());
        }
    });
}

/// Compares the pages with the commands; `TENURE_REFRESH=1` writes them instead.
#[test]
fn the_reference_has_every_command() {
    let is_refresh = std::env::var_os("TENURE_REFRESH").is_some();
    let mut pages = BTreeSet::from([page("tenure")]);
    walk(&built(), &mut |visited| {
        let name = full_name(visited);
        let (path, block) = (page(name), block(visited));
        let there = fs::read_to_string(&path).unwrap_or_default();
        let begin = format!("<!-- begin {name}: generated -->\n");
        let Some((head, rest)) = there.split_once(&begin) else {
            panic!("{} has no line {begin}and no {END}", path.display());
        };
        let (old, tail) = rest.split_once(END).unwrap_or_else(|| panic!("{name}: no {END}"));
        if is_refresh {
            fs::write(&path, format!("{head}{begin}{block}{END}{tail}")).unwrap();
        } else {
            assert!(
                old == block,
                "{}: run TENURE_REFRESH=1 cargo test -p tenure-cli the_reference_has_every_command",
                path.display()
            );
        }
        pages.insert(path);
    });
    let files = fs::read_dir(FOLDER).unwrap().map(|file| file.unwrap().path());
    assert_eq!(files.collect::<BTreeSet<_>>(), pages);
}

fn page(name: &str) -> PathBuf {
    let first = name.split(' ').nth(1).unwrap_or("README");
    Path::new(FOLDER).join(format!("{first}.md"))
}

fn block(command: &Command) -> String {
    let name = full_name(command);
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let lines: Vec<&str> = usage.lines().map(str::trim).collect();
    let mut text = format!("{about}.\n\n```text\n{}\n```\n\n", lines.join("\n"));
    text += &table(command);
    let children = command.get_subcommands().filter(|child| !child.is_hide_set());
    for child in children {
        let (full, about) = (full_name(child), child.get_about().unwrap_or_default());
        let link = match full.split(' ').count() {
            2 => format!("{}.md", child.get_name()),
            _ => format!("#{}", full.replace(' ', "-")),
        };
        let _ = writeln!(text, "- [{full}]({link}): {about}");
    }
    if command.has_subcommands() {
        text.push('\n');
    }
    let _ = write!(text, "```sh\n{}\n```\n", examples(name));
    text
}

/// Positional arguments and options, one per row.
fn table(command: &Command) -> String {
    let is_common = |arg: &&Arg| COMMON.contains(&arg.get_id().as_str());
    let has_parent = full_name(command).split(' ').count() > 2;
    let args = command.get_arguments().filter(|arg| !is_common(arg) && !arg.is_hide_set());
    // A global option is described with the parent that defines it.
    let args: Vec<&Arg> = args.filter(|arg| !(has_parent && arg.is_global_set())).collect();
    if args.is_empty() {
        return String::new();
    }
    let mut text =
        "| option | default | environment | description |\n|---|---|---|---|\n".to_owned();
    for arg in args {
        let cells = cells(arg).map(|cell| cell.replace('|', "\\|"));
        let _ = writeln!(text, "| {} |", cells.join(" | ").replace("  ", " "));
    }
    text.push('\n');
    text
}

fn cells(arg: &Arg) -> [String; 4] {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let (help, stated) = match help.split_once(" [default: ") {
        Some((help, default)) => (help.to_owned(), default.trim_end_matches(']').to_owned()),
        None => (help, String::new()),
    };
    let is_flag = !arg.get_action().takes_values();
    let defaults: Vec<String> = match is_flag {
        true => Vec::new(),
        false => arg.get_default_values().iter().map(|v| format!("`{}`", v.display())).collect(),
    };
    let default = if defaults.is_empty() { stated } else { defaults.join(", ") };
    let variable = arg.get_env().map(|name| format!("`{}`", name.display())).unwrap_or_default();
    let values = arg.get_possible_values();
    let values: Vec<String> = values
        .iter()
        .filter(|_| !is_flag)
        .map(|value| match value.get_help() {
            Some(help) => format!("`{}` ({help})", value.get_name()),
            None => format!("`{}`", value.get_name()),
        })
        .collect();
    let description = match values.is_empty() {
        true => help,
        false => format!("{help}: {}", values.join(", ")),
    };
    [format!("`{}`", arg.to_string().replace(['<', '>'], "")), default, variable, description]
}

#[test]
fn words_are_split_as_a_shell_does() {
    assert_eq!(words("a 'b c' \"d\" --x='e f' < g"), ["a", "b c", "d", "--x=e f"]);
}
