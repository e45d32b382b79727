//! Colours of output for people.
//!
//! Every style ends within its line and its table cell, so that lines can be cut and joined.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use clap::builder::styling::{AnsiColor, Style};

/// When output has colours. The values have no help texts: clap would print the long form of every
/// command's help.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorArg {
    #[default]
    Auto,
    Always,
    Never,
}

/// Meaning of a painted text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Paint {
    Old,
    Good,
    Warning,
    Bad,
    Heading,
}

static ON_STDOUT: AtomicBool = AtomicBool::new(false);
static ON_STDERR: AtomicBool = AtomicBool::new(false);

/// Decides which of standard output and standard error get colours. JSON never has any.
pub(crate) fn choose(choice: ColorArg, json: bool) {
    let variable = |name: &str| std::env::var_os(name).unwrap_or_default();
    let on = |is_terminal| !json && is_on(choice, is_terminal, &variable);
    ON_STDOUT.store(on(io::stdout().is_terminal()), Ordering::Relaxed);
    ON_STDERR.store(on(io::stderr().is_terminal()), Ordering::Relaxed);
}

fn is_on(choice: ColorArg, is_terminal: bool, variable: &dyn Fn(&str) -> OsString) -> bool {
    let is = |name, off: &str| !variable(name).is_empty() && variable(name) != off;
    match choice {
        ColorArg::Always => true,
        ColorArg::Never => false,
        ColorArg::Auto if is("NO_COLOR", "") => false,
        ColorArg::Auto if is("CLICOLOR_FORCE", "0") => true,
        ColorArg::Auto => is_terminal && variable("TERM") != "dumb",
    }
}

/// Decides by the words of a command line that is not parsed yet.
pub(crate) fn choose_by_words(words: &[OsString]) {
    let words = || words.iter().map(OsString::as_os_str).take_while(|word| *word != "--");
    let next = words().skip(1).chain([OsStr::new("")]);
    let value = |(word, next): (&OsStr, &OsStr)| match word.to_str()? {
        "--color" => ColorArg::from_str(next.to_str()?, false).ok(),
        word => ColorArg::from_str(word.strip_prefix("--color=")?, false).ok(),
    };
    let choice = words().zip(next).filter_map(value).last();
    choose(choice.unwrap_or_default(), words().any(|word| word == "--json"));
}

pub(crate) fn is_on_stdout() -> bool {
    ON_STDOUT.load(Ordering::Relaxed)
}

pub(crate) fn is_on_stderr() -> bool {
    ON_STDERR.load(Ordering::Relaxed)
}

impl Paint {
    /// Paints text for standard output.
    pub(crate) fn out(self, text: &str) -> String {
        self.paint(text, is_on_stdout())
    }

    /// Paints text for standard error.
    pub(crate) fn err(self, text: &str) -> String {
        self.paint(text, is_on_stderr())
    }

    fn paint(self, text: &str, on: bool) -> String {
        if !on || text.is_empty() {
            return text.to_owned();
        }
        let style = match self {
            Self::Old => Style::new().dimmed(),
            Self::Good => AnsiColor::Green.on_default(),
            Self::Warning => AnsiColor::Yellow.on_default(),
            Self::Bad => AnsiColor::Red.on_default().bold(),
            Self::Heading => Style::new().bold(),
        };
        format!("{style}{text}{style:#}")
    }

    /// Meaning of a cell below this head: the worst of its words.
    pub(crate) fn of_cell(head: &str, cell: &str) -> Option<Self> {
        match head {
            "EVICTED" => (cell == "yes").then_some(Self::Bad),
            "STATE" | "LIVENESS" | "OUTCOME" | "EVENT" => {
                cell.split(',').filter_map(Self::of_word).max()
            }
            _ => None,
        }
    }

    fn of_word(word: &str) -> Option<Self> {
        match word {
            "ok" | "good" | "online" | "healthy" | "granted" => Some(Self::Good),
            "look" | "stale" | "degraded" | "held" | "pending" | "drained" | "cordoned"
            | "leaving" | "waiting" | "foreign" | "takes-no-part" => Some(Self::Warning),
            "lowers" | "offline" | "error" | "revoked" | "evicted" | "expired" | "refused" => {
                Some(Self::Bad)
            }
            "joined" | "left" | "released" | "forgotten" | "discarded" | "absent" | "-" => {
                Some(Self::Old)
            }
            _ => None,
        }
    }
}

/// Counts the characters of a line that a terminal shows.
pub(crate) fn width(line: &str) -> usize {
    let mut chars = line.chars();
    let mut count = 0;
    while let Some(c) = chars.next() {
        match c {
            // Styles are the only escapes in output: foreign text is escaped.
            '\u{1b}' => drop(chars.find(char::is_ascii_alphabetic)),
            _ => count += 1,
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_above_variables_and_those_above_the_terminal() {
        let on = |choice, is_terminal, (name, value): (&str, &str)| {
            is_on(choice, is_terminal, &|asked| {
                if asked == name { value.into() } else { "".into() }
            })
        };
        use ColorArg::{Always, Auto, Never};
        for (choice, is_terminal, variable, expected) in [
            (Auto, true, ("", ""), true),
            (Auto, false, ("", ""), false),
            (Auto, true, ("TERM", "dumb"), false),
            (Auto, true, ("NO_COLOR", "1"), false),
            (Auto, true, ("NO_COLOR", ""), true),
            (Auto, false, ("CLICOLOR_FORCE", "1"), true),
            (Auto, false, ("CLICOLOR_FORCE", "0"), false),
            (Always, false, ("NO_COLOR", "1"), true),
            (Never, true, ("CLICOLOR_FORCE", "1"), false),
        ] {
            assert_eq!(on(choice, is_terminal, variable), expected, "{choice:?} {variable:?}");
        }
    }

    #[test]
    fn styles_have_no_width() {
        let painted = Paint::Bad.paint("é3", true);
        assert_eq!((painted.as_str(), width(&painted)), ("\u{1b}[1m\u{1b}[31mé3\u{1b}[0m", 2));
        assert_eq!(Paint::Bad.paint("", true), "");
    }

    #[test]
    fn a_cell_is_as_bad_as_its_worst_word() {
        assert_eq!(Paint::of_cell("STATE", "drained,evicted"), Some(Paint::Bad));
        assert_eq!(Paint::of_cell("STATE", "unheard-of"), None);
        assert_eq!(Paint::of_cell("DUTY", "evicted"), None);
        assert_eq!(Paint::of_cell("EVICTED", "no"), None);
    }
}
