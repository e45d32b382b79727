//! Text on its way to a terminal or a pipe.

use std::io::{self, ErrorKind, Write};

pub(crate) use tenure_core::text::escaped as shown;

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
