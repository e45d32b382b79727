//! Output to terminals and pipes.

use std::io::{self, ErrorKind, Write};

use rustix::termios::tcgetwinsize;
use serde::Serialize;
use serde_json::Value;
pub(crate) use tenure_core::text::escaped as shown;

/// Note of a dry run.
pub(crate) const DRY_RUN: &str = "a dry run: nothing was changed";

/// Writes to standard output. A reader that has seen enough (`tenure ls | head`) is no error.
pub(crate) fn to_stdout(text: &str) -> io::Result<()> {
    bytes_to_stdout(text.as_bytes())
}

/// Writes to standard output; a closed pipe is an error.
pub(crate) fn all_to_stdout(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush())
}

/// Writes bytes to standard output; a closed pipe is no error.
pub(crate) fn bytes_to_stdout(bytes: &[u8]) -> io::Result<()> {
    match all_to_stdout(bytes) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Writes a line to standard error. A failure is ignored: there is nobody left to tell.
pub(crate) fn to_stderr(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", text.trim_end());
}

/// Formats a JSON document, with sorted keys.
pub(crate) fn document(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Converts a report to JSON. Reports have text keys, so this does not fail.
pub(crate) fn value(report: &impl Serialize) -> Value {
    serde_json::to_value(report).unwrap_or_default()
}

/// Formats a report as a JSON document.
pub(crate) fn report(report: &impl Serialize) -> String {
    document(&value(report))
}

/// A line on the terminal of standard error that is overwritten in place.
#[derive(Default)]
pub(crate) struct StatusLine {
    open: bool,
}

impl StatusLine {
    /// Overwrites the line. Returns `false` if there is no terminal, or if it would wrap the line.
    pub(crate) fn show(&mut self, line: &str) -> bool {
        let fits = tcgetwinsize(io::stderr()).is_ok_and(|size| line.len() < size.ws_col.into());
        if fits {
            let _ = write!(io::stderr().lock(), "{CLEAR_LINE}{line}");
            self.open = true;
        }
        fits
    }

    /// Ends the line and leaves it visible.
    pub(crate) fn end(&mut self) {
        if std::mem::take(&mut self.open) {
            to_stderr("");
        }
    }
}

/// Removes a line that was not ended.
impl Drop for StatusLine {
    fn drop(&mut self) {
        if self.open {
            let _ = write!(io::stderr().lock(), "{CLEAR_LINE}");
        }
    }
}

/// Carriage return, and erase the line.
const CLEAR_LINE: &str = "\r\u{1b}[K";
