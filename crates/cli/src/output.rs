//! Output to terminals and pipes.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use rustix::termios::tcgetwinsize;
use serde::Serialize;
use serde_json::Value;
pub(crate) use tenure_core::text::escaped as shown;

use crate::failure::Failure;

/// Writes to standard output. Returns `false` if the reader has gone (`tenure ls | head`).
pub(crate) fn to_stdout(output: impl AsRef<[u8]>) -> Result<bool, Failure> {
    Ok(write_stdout(output).context("cannot write to standard output")?)
}

/// Writes to standard output, as [`to_stdout`] does.
pub(crate) fn write_stdout(output: impl AsRef<[u8]>) -> io::Result<bool> {
    match all_to_stdout(output.as_ref()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true),
    }
}

/// Writes to standard output; a closed pipe is an error.
pub(crate) fn all_to_stdout(bytes: &[u8]) -> io::Result<()> {
    erase_status_line();
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush())
}

/// Writes a line to standard error. A failure is ignored: there is no other place to report it.
pub(crate) fn to_stderr(text: &str) {
    erase_status_line();
    let _ = writeln!(io::stderr().lock(), "{}", text.trim_end());
}

/// Prints to standard error that a dry run changed nothing.
pub(crate) fn note_dry_run(dry_run: bool) {
    if dry_run {
        to_stderr("a dry run: nothing was changed");
    }
}

/// Prints notes to standard error.
pub(crate) fn note_all(notes: &[impl Display]) {
    notes.iter().for_each(|note| to_stderr(&format!("note: {note}")));
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

/// A line on the terminal of standard error that is overwritten in place. Other output of the
/// process removes it.
#[derive(Default)]
pub(crate) struct StatusLine {}

/// Whether a status line is on the terminal.
static STATUS_LINE: AtomicBool = AtomicBool::new(false);

impl StatusLine {
    /// Overwrites the line. Returns `false` without a terminal, or if the line would wrap.
    pub(crate) fn show(&mut self, line: &str) -> bool {
        let fits = tcgetwinsize(io::stderr()).is_ok_and(|size| line.len() < size.ws_col.into());
        if fits {
            let _ = write!(io::stderr().lock(), "{CLEAR_LINE}{line}");
            STATUS_LINE.store(true, Ordering::Relaxed);
        }
        fits
    }

    /// Ends the line and leaves it visible.
    pub(crate) fn end(&mut self) {
        if STATUS_LINE.swap(false, Ordering::Relaxed) {
            to_stderr("");
        }
    }
}

/// Removes a line that was not ended.
impl Drop for StatusLine {
    fn drop(&mut self) {
        erase_status_line();
    }
}

fn erase_status_line() {
    if STATUS_LINE.swap(false, Ordering::Relaxed) {
        let _ = write!(io::stderr().lock(), "{CLEAR_LINE}");
    }
}

/// Carriage return, and erase the line.
const CLEAR_LINE: &str = "\r\u{1b}[K";
