//! Format of log messages: lower-case, no full stop, values as fields.

use super::source::{Rust, closing, find_words, line_of};
use super::{File, TidyFinding};

const MACROS: &[&str] = &["trace!(", "debug!(", "info!(", "warn!(", "error!("];

pub(crate) fn check(file: &File) -> Vec<TidyFinding> {
    let Some(rust) = &file.rust else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    for name in MACROS {
        for offset in find_words(&rust.code, name) {
            let Some(message) = message(rust, offset + name.len() - 1) else {
                continue;
            };
            if let Some(what) = fault(message) {
                let line = line_of(&rust.code, offset);
                let instead = "write it in lower case, without a full stop";
                findings.push(TidyFinding::new(&file.path, line, "log message", what, instead));
            }
        }
    }
    findings
}

/// Returns the first string that is a separate argument: not `target: "x"`, nor `field = "x"`.
fn message(rust: &Rust, open: usize) -> Option<&str> {
    let end = closing(&rust.code, open);
    let mut quote = open;
    loop {
        quote = next_quote(&rust.code, quote + 1, end)?;
        let last = next_quote(&rust.code, quote + 1, end)?;
        let before = rust.code[open..quote].trim_end_matches(['r', '#']).trim_end();
        if before.ends_with(['(', ',']) {
            return rust.strings.get(quote + 1..last);
        }
        quote = last;
    }
}

fn next_quote(code: &str, from: usize, end: usize) -> Option<usize> {
    code.get(from..end)?.find('"').map(|offset| from + offset)
}

fn fault(message: &str) -> Option<&'static str> {
    let first_word = message.split_whitespace().next()?;
    // A name such as SQLSTATE keeps its case.
    let is_name = first_word.len() > 1 && !first_word.contains(char::is_lowercase);
    if first_word.starts_with(char::is_uppercase) && !is_name {
        return Some("the log message begins with a capital");
    }
    message.trim_end().ends_with('.').then_some("the log message ends in a full stop")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        check(&File::new("a.rs", text.to_owned())).len()
    }

    #[test]
    fn messages_are_lower_case_without_full_stop() {
        assert_eq!(count("tracing::info!(\"lease lost\")"), 0);
        assert_eq!(count("tracing::info!(\"Lease lost\")"), 1);
        assert_eq!(count("warn!(duty = %id, \"lease lost.\")"), 1);
        assert_eq!(count("tracing::error!(\"SQLSTATE unknown\")"), 0);
    }

    #[test]
    fn fields_and_targets_are_not_messages() {
        assert_eq!(count("debug!(target: \"Tenure\", name = \"W.\", \"lost\")"), 0);
        assert_eq!(count("debug!(target: \"tenure\", \"Lost\")"), 1);
        assert_eq!(count("info!(name)"), 0);
    }

    #[test]
    fn other_macros_are_left_alone() {
        assert_eq!(count("my_info!(\"Lost\"); println!(\"Lost.\")"), 0);
    }
}
