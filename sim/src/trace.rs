//! Trace of a run, one line per event: virtual time, actor, action.

use std::fmt::{self, Write};

use crate::Nanos;

/// The trace of one run. It costs nothing while it is off; a seed is run again to get its trace.
#[derive(Debug, Default)]
pub struct Trace {
    on: bool,
    lines: Vec<String>,
}

impl Trace {
    /// Creates a trace that keeps its lines if `on`.
    pub fn new(on: bool) -> Self {
        Self { on, lines: Vec::new() }
    }

    /// Adds a line.
    pub fn line(&mut self, at: Nanos, who: impl fmt::Display, what: impl FnOnce() -> String) {
        if !self.on {
            return;
        }
        let mut line = String::new();
        // Writing to a string never fails.
        let _ = write!(line, "{:>12.6} {who:<8} {}", at as f64 / 1e9, what());
        self.lines.push(line);
    }

    /// Returns the lines.
    pub fn into_lines(self) -> Vec<String> {
        self.lines
    }
}
