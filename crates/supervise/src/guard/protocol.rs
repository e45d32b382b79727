//! Protocol between a guard and its parent: lines of percent-encoded words.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use tenure_core::LocalInstant;

/// A request to a guard.
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
pub(crate) enum GuardReport {
    /// The guard is isolated and reads requests.
    Ready,
    /// The guard could not be isolated, and has ended.
    CannotIsolate { detail: String },
    /// The command runs; its process id is also that of its group.
    Started { id: u64, pid: i32 },
    /// The command could not be started.
    CannotStart { id: u64, errno: i32 },
    /// The command was stopped by this signal.
    Stopped { id: u64, signal: i32 },
    /// A process of the command still runs although it was killed. Reported once.
    Remains { id: u64, pid: i32 },
    /// The command has ended, and nothing of it runs any more.
    Ended { id: u64, status: ExitStatus, cause: EndCause },
}

/// Exit status of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// It exited with this code.
    Code(i32),
    /// It was ended by this signal.
    Signal(i32),
}

/// The reason why a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndCause {
    /// It exited on its own.
    Exited,
    /// The supervisor asked for it, or is gone.
    Requested,
    /// Its deadline was near.
    Deadline,
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
        match verb {
            "start" => {
                let deadline = instant(words.next()?)?;
                let grace = Duration::from_nanos(words.next()?.parse().ok()?);
                let count: usize = words.next()?.parse().ok()?;
                let mut env = Vec::new();
                for _ in 0..count {
                    let name = unescaped(words.next()?).into_string().ok()?;
                    env.push((name, unescaped(words.next()?)));
                }
                let argv = words.map(unescaped).collect();
                Some(Self::Start(StartRequest { id, deadline, grace, env, argv }))
            }
            "deadline" => Some(Self::Deadline { id, at: instant(words.next()?)? }),
            "signal" => Some(Self::Signal { id, number: words.next()?.parse().ok()? }),
            "end" => Some(Self::End { id, kill_at: instant(words.next()?)? }),
            _ => None,
        }
    }
}

impl GuardReport {
    pub(crate) fn to_line(&self) -> String {
        match self {
            Self::Ready => "ready 0\n".to_owned(),
            Self::CannotIsolate { detail } => {
                let mut line = "cannot-isolate 0".to_owned();
                push(&mut line, detail.as_ref());
                line + "\n"
            }
            Self::Started { id, pid } => format!("started {id} {pid}\n"),
            Self::CannotStart { id, errno } => format!("cannot-start {id} {errno}\n"),
            Self::Stopped { id, signal } => format!("stopped {id} {signal}\n"),
            Self::Remains { id, pid } => format!("remains {id} {pid}\n"),
            Self::Ended { id, status, cause } => {
                let (how, number) = match status {
                    ExitStatus::Code(code) => ("code", code),
                    ExitStatus::Signal(signal) => ("signal", signal),
                };
                let cause = match cause {
                    EndCause::Exited => "itself",
                    EndCause::Requested => "ordered",
                    EndCause::Deadline => "deadline",
                };
                format!("ended {id} {how} {number} {cause}\n")
            }
        }
    }

    pub(crate) fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at)?.parse::<i32>().ok();
        let id = words.get(1)?.parse().ok()?;
        match words[0] {
            "ready" => Some(Self::Ready),
            "cannot-isolate" => {
                let detail = unescaped(words.get(2)?).to_string_lossy().into_owned();
                Some(Self::CannotIsolate { detail })
            }
            "started" => Some(Self::Started { id, pid: number(2)? }),
            "cannot-start" => Some(Self::CannotStart { id, errno: number(2)? }),
            "stopped" => Some(Self::Stopped { id, signal: number(2)? }),
            "remains" => Some(Self::Remains { id, pid: number(2)? }),
            "ended" => {
                let status = match *words.get(2)? {
                    "code" => ExitStatus::Code(number(3)?),
                    "signal" => ExitStatus::Signal(number(3)?),
                    _ => return None,
                };
                let cause = match *words.get(4)? {
                    "itself" => EndCause::Exited,
                    "ordered" => EndCause::Requested,
                    "deadline" => EndCause::Deadline,
                    _ => return None,
                };
                Some(Self::Ended { id, status, cause })
            }
            _ => None,
        }
    }
}

impl ExitStatus {
    /// The exit code as shells report it: 128 and the number for a signal.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Code(code) => code as u8,
            Self::Signal(signal) => 128_u8.saturating_add(signal as u8),
        }
    }
}

fn instant(word: &str) -> Option<LocalInstant> {
    Some(LocalInstant::from_nanos(word.parse().ok()?))
}

/// Appends a word. An empty word counts: there are as many spaces as words that follow.
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
        for report in [
            GuardReport::Ready,
            GuardReport::CannotIsolate { detail: "no: way".to_owned() },
            GuardReport::Started { id: 1, pid: 77 },
            GuardReport::CannotStart { id: 1, errno: 2 },
            GuardReport::Stopped { id: 1, signal: 20 },
            GuardReport::Remains { id: 1, pid: 78 },
            GuardReport::Ended { id: 1, status: ExitStatus::Code(255), cause: EndCause::Exited },
            GuardReport::Ended { id: 1, status: ExitStatus::Signal(9), cause: EndCause::Requested },
            GuardReport::Ended { id: 1, status: ExitStatus::Signal(15), cause: EndCause::Deadline },
        ] {
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
