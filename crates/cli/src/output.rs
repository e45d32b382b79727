//! Text on its way to a terminal or a pipe.

use std::io::{self, ErrorKind, Write};

/// Said where a command has only told what it would do.
pub(crate) const DRY_RUN: &str = "a dry run: nothing was changed";

/// Writes to standard output. A reader that has seen enough (`tenure ls | head`) is no error.
pub(crate) fn to_stdout(text: &str) -> io::Result<()> {
    bytes_to_stdout(text.as_bytes())
}

/// Writes to standard output what has to arrive.
pub(crate) fn all_to_stdout(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush())
}

/// Prints what may be no text.
pub(crate) fn bytes_to_stdout(bytes: &[u8]) -> io::Result<()> {
    match all_to_stdout(bytes) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Writes a line to standard error. When nobody reads there, there is nobody left to tell.
pub(crate) fn to_stderr(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", text.trim_end());
}

/// One JSON document and a newline.
pub(crate) fn document(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

/// Text of others in a form that a terminal shows and does not obey: what is no plain character is
/// written as an escape, on one line.
pub(crate) fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\'' => shown.push(c),
            c => shown.extend(c.escape_debug()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_nothing_to_obey() {
        for (text, expected) in [
            ("plain 'text' \"é🦀\"", "plain 'text' \"é🦀\""),
            ("a\nb\tc\\d", "a\\nb\\tc\\\\d"),
            ("\u{1b}[31mred\u{7}", "\\u{1b}[31mred\\u{7}"),
            ("\u{9b}2J\u{202e}x", "\\u{9b}2J\\u{202e}x"),
        ] {
            assert_eq!(shown(text), expected);
        }
    }
}
