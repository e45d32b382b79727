//! Protocol between a guard and its parent: lines of percent-encoded words.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use tenure_core::LocalInstant;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GuardRequest {
    /// Start a command.
    Start(StartRequest),
    /// Move the deadline.
    Deadline { id: u64, at: LocalInstant },
    /// Send a signal to the command's process group.
    Signal { id: u64, number: i32 },
    /// End the command: TERM now, KILL at `kill_at`.
    End { id: u64, kill_at: LocalInstant },
}

/// A command and its deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartRequest {
    /// Identifies this run in later requests and reports.
    pub(crate) id: u64,
    /// Nothing of the command runs after this instant.
    pub(crate) deadline: LocalInstant,
    /// Time between TERM and the deadline.
    pub(crate) grace: Duration,
    /// Environment variables in addition to the guard's own.
    pub(crate) env: Vec<(String, OsString)>,
    /// The program and its arguments.
    pub(crate) argv: Vec<OsString>,
}

/// A report of a guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GuardReport {
    /// Id of the [`StartRequest`]; 0 for a report about the guard itself.
    pub(crate) id: u64,
    pub(crate) event: GuardEvent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GuardEvent {
    /// The guard is isolated and reads requests.
    Ready,
    /// The guard could not be isolated, and has ended.
    CannotIsolate(String),
    /// The command runs; its process id is also that of its group.
    Started(i32),
    /// The command could not be started, with this error of the system.
    CannotStart(i32),
    /// The command was stopped by this signal.
    Stopped(i32),
    /// This process of the command still runs although it was killed. Reported once.
    Remains(i32),
    /// The command has ended, and nothing of it runs any more.
    Ended(ExitStatus, EndCause),
}

/// Exit status of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// It exited with this code.
    Code(i32),
    /// It was ended by this signal.
    Signal(i32),
}

tenure_core::text_enum! {
    /// The reason why a command ended.
    pub enum EndCause {
        Exited "itself" "It exited on its own."
        Requested "ordered" "The supervisor asked for it, or is gone."
        Deadline "deadline" "Its deadline was near."
    }
}

impl GuardRequest {
    pub(crate) fn to_line(&self) -> String {
        match self {
            Self::Start(start) => {
                let StartRequest { id, deadline, grace, env, argv } = start;
                let (deadline, grace) = (deadline.as_nanos(), grace.as_nanos());
                let mut line = format!("start {id} {deadline} {grace} {}", env.len());
                for (name, value) in env {
                    push(&mut line, name.as_ref());
                    push(&mut line, value);
                }
                argv.iter().for_each(|word| push(&mut line, word));
                line + "\n"
            }
            Self::Deadline { id, at } => format!("deadline {id} {}\n", at.as_nanos()),
            Self::Signal { id, number } => format!("signal {id} {number}\n"),
            Self::End { id, kill_at } => format!("end {id} {}\n", kill_at.as_nanos()),
        }
    }

    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let (verb, id) = (words.next()?, words.next()?.parse().ok()?);
        let mut number = || words.next()?.parse().ok();
        Some(match verb {
            "start" => {
                let deadline = LocalInstant::from_nanos(number()?);
                let (grace, count) = (Duration::from_nanos(number()?), number()?);
                let mut env = Vec::new();
                for _ in 0..count {
                    let name = unescaped(words.next()?).into_string().ok()?;
                    env.push((name, unescaped(words.next()?)));
                }
                let argv = words.map(unescaped).collect();
                Self::Start(StartRequest { id, deadline, grace, env, argv })
            }
            "deadline" => Self::Deadline { id, at: LocalInstant::from_nanos(number()?) },
            "signal" => Self::Signal { id, number: i32::try_from(number()?).ok()? },
            "end" => Self::End { id, kill_at: LocalInstant::from_nanos(number()?) },
            _ => return None,
        })
    }
}

impl GuardReport {
    pub(crate) fn to_line(&self) -> String {
        let id = self.id;
        match &self.event {
            GuardEvent::Ready => format!("ready {id}\n"),
            GuardEvent::CannotIsolate(detail) => {
                let mut line = format!("cannot-isolate {id}");
                push(&mut line, detail.as_ref());
                line + "\n"
            }
            GuardEvent::Started(pid) => format!("started {id} {pid}\n"),
            GuardEvent::CannotStart(errno) => format!("cannot-start {id} {errno}\n"),
            GuardEvent::Stopped(signal) => format!("stopped {id} {signal}\n"),
            GuardEvent::Remains(pid) => format!("remains {id} {pid}\n"),
            GuardEvent::Ended(ExitStatus::Code(code), cause) => {
                format!("ended {id} code {code} {cause}\n")
            }
            GuardEvent::Ended(ExitStatus::Signal(signal), cause) => {
                format!("ended {id} signal {signal} {cause}\n")
            }
        }
    }

    pub(crate) fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at)?.parse::<i32>().ok();
        let cause = |at: usize| EndCause::parse(words.get(at)?);
        let id = words.get(1)?.parse().ok()?;
        let event = match (words[0], words.get(2).copied()) {
            ("ready", _) => GuardEvent::Ready,
            ("cannot-isolate", Some(detail)) => {
                GuardEvent::CannotIsolate(unescaped(detail).to_string_lossy().into_owned())
            }
            ("started", _) => GuardEvent::Started(number(2)?),
            ("cannot-start", _) => GuardEvent::CannotStart(number(2)?),
            ("stopped", _) => GuardEvent::Stopped(number(2)?),
            ("remains", _) => GuardEvent::Remains(number(2)?),
            ("ended", Some("code")) => GuardEvent::Ended(ExitStatus::Code(number(3)?), cause(4)?),
            ("ended", Some("signal")) => {
                GuardEvent::Ended(ExitStatus::Signal(number(3)?), cause(4)?)
            }
            _ => return None,
        };
        Some(Self { id, event })
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "ended by signal {signal}"),
        }
    }
}

impl ExitStatus {
    /// Returns the exit code as shells report it: 128 plus the number for a signal.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Code(code) => code as u8,
            Self::Signal(signal) => 128_u8.saturating_add(signal as u8),
        }
    }
}

/// Appends a space and a word, which may be empty.
fn push(line: &mut String, word: &OsStr) {
    line.push(' ');
    line.extend(percent_encode(word.as_bytes(), NON_ALPHANUMERIC));
}

fn unescaped(word: &str) -> OsString {
    OsString::from_vec(Cow::from(percent_decode_str(word)).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_understood() {
        let at = LocalInstant::from_nanos(u64::MAX);
        let odd = OsString::from_vec(b"a b\n\xff%20".to_vec());
        for order in [
            GuardRequest::Start(StartRequest {
                id: 1,
                deadline: at,
                grace: Duration::from_secs(5),
                env: vec![("A".to_owned(), odd.clone()), ("B".to_owned(), OsString::new())],
                argv: vec!["sh".into(), OsString::new(), odd],
            }),
            GuardRequest::Deadline { id: 2, at },
            GuardRequest::Signal { id: 3, number: 15 },
            GuardRequest::End { id: u64::MAX, kill_at: at },
        ] {
            let line = order.to_line();
            assert_eq!(line.matches('\n').count(), 1);
            assert_eq!(GuardRequest::parse(line.trim_end_matches('\n')), Some(order));
        }
        for event in [
            GuardEvent::Ready,
            GuardEvent::CannotIsolate("no: way".to_owned()),
            GuardEvent::Started(77),
            GuardEvent::CannotStart(2),
            GuardEvent::Stopped(20),
            GuardEvent::Remains(78),
            GuardEvent::Ended(ExitStatus::Code(255), EndCause::Exited),
            GuardEvent::Ended(ExitStatus::Signal(9), EndCause::Requested),
            GuardEvent::Ended(ExitStatus::Signal(15), EndCause::Deadline),
        ] {
            let report = GuardReport { id: 1, event };
            assert_eq!(GuardReport::parse(report.to_line().trim_end()), Some(report));
        }
        for line in ["", "start", "start 1 2", "end 1 x", "ended 1 code", "started x 1", "no 1"] {
            assert_eq!(
                (GuardRequest::parse(line), GuardReport::parse(line)),
                (None, None),
                "{line}"
            );
        }
    }

    #[test]
    fn an_end_is_told_to_shells_in_their_way() {
        assert_eq!(ExitStatus::Code(3).exit_code(), 3);
        assert_eq!(ExitStatus::Signal(15).exit_code(), 143);
    }
}
