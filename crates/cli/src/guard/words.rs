//! What a guard is told, and what it tells: lines of words, each escaped.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use tenure_core::LocalInstant;

/// What a guard is told to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Start a command.
    Start(Start),
    /// The hold stands until then.
    Deadline { id: u64, at: LocalInstant },
    /// Pass a signal to the command's group.
    Signal { id: u64, number: i32 },
    /// End the command: TERM now, KILL at that instant.
    End { id: u64, kill_at: LocalInstant },
}

/// A command and how long it may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// Names this run of it.
    pub(crate) id: u64,
    /// Nothing of it runs from then on.
    pub(crate) deadline: LocalInstant,
    /// How long before that it is asked to end.
    pub(crate) grace: Duration,
    /// Variables on top of the guard's own.
    pub(crate) env: Vec<(String, OsString)>,
    /// The program and its arguments.
    pub(crate) argv: Vec<OsString>,
}

/// What a guard tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// An isolated guard takes orders.
    Ready,
    /// There is no guard: it could not be isolated.
    CannotIsolate { detail: String },
    /// The command runs; its process id is also that of its group.
    Started { id: u64, pid: i32 },
    /// It does not, and never did.
    CannotStart { id: u64, errno: i32 },
    /// It was stopped by this signal.
    Stopped { id: u64, signal: i32 },
    /// It was killed, and this process of it runs all the same. Told once.
    Remains { id: u64, pid: i32 },
    /// It has ended, and nothing of it runs any more.
    Ended { id: u64, end: End, why: Why },
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// Why a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// By itself.
    Itself,
    /// It was ordered.
    Ordered,
    /// The deadline was near.
    Deadline,
}

impl Order {
    pub(crate) fn line(&self) -> String {
        match self {
            Self::Start(start) => {
                let Start { id, deadline, grace, env, argv } = start;
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

    pub(crate) fn read(line: &str) -> Option<Self> {
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
                Some(Self::Start(Start { id, deadline, grace, env, argv }))
            }
            "deadline" => Some(Self::Deadline { id, at: instant(words.next()?)? }),
            "signal" => Some(Self::Signal { id, number: words.next()?.parse().ok()? }),
            "end" => Some(Self::End { id, kill_at: instant(words.next()?)? }),
            _ => None,
        }
    }
}

impl Report {
    pub(crate) fn line(&self) -> String {
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
            Self::Ended { id, end, why } => {
                let (how, number) = match end {
                    End::Code(code) => ("code", code),
                    End::Signal(signal) => ("signal", signal),
                };
                let why = match why {
                    Why::Itself => "itself",
                    Why::Ordered => "ordered",
                    Why::Deadline => "deadline",
                };
                format!("ended {id} {how} {number} {why}\n")
            }
        }
    }

    pub(crate) fn read(line: &str) -> Option<Self> {
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
                let end = match *words.get(2)? {
                    "code" => End::Code(number(3)?),
                    "signal" => End::Signal(number(3)?),
                    _ => return None,
                };
                let why = match *words.get(4)? {
                    "itself" => Why::Itself,
                    "ordered" => Why::Ordered,
                    "deadline" => Why::Deadline,
                    _ => return None,
                };
                Some(Self::Ended { id, end, why })
            }
            _ => None,
        }
    }
}

impl End {
    /// As a shell tells it: the exit code, or 128 and the signal.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Code(code) => code as u8,
            Self::Signal(signal) => 128_u8.saturating_add(signal as u8),
        }
    }
}

fn instant(word: &str) -> Option<LocalInstant> {
    Some(LocalInstant::from_nanos(word.parse().ok()?))
}

/// An empty word is a word too: there are exactly as many spaces as words that follow.
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
            Order::Start(Start {
                id: 1,
                deadline: at,
                grace: Duration::from_secs(5),
                env: vec![("A".to_owned(), odd.clone()), ("B".to_owned(), OsString::new())],
                argv: vec!["sh".into(), OsString::new(), odd],
            }),
            Order::Deadline { id: 2, at },
            Order::Signal { id: 3, number: 15 },
            Order::End { id: u64::MAX, kill_at: at },
        ] {
            let line = order.line();
            assert_eq!(line.matches('\n').count(), 1);
            assert_eq!(Order::read(line.trim_end_matches('\n')), Some(order));
        }
        for report in [
            Report::Ready,
            Report::CannotIsolate { detail: "no: way".to_owned() },
            Report::Started { id: 1, pid: 77 },
            Report::CannotStart { id: 1, errno: 2 },
            Report::Stopped { id: 1, signal: 20 },
            Report::Remains { id: 1, pid: 78 },
            Report::Ended { id: 1, end: End::Code(255), why: Why::Itself },
            Report::Ended { id: 1, end: End::Signal(9), why: Why::Ordered },
            Report::Ended { id: 1, end: End::Signal(15), why: Why::Deadline },
        ] {
            assert_eq!(Report::read(report.line().trim_end()), Some(report));
        }
        for line in ["", "start", "start 1 2", "end 1 x", "ended 1 code", "started x 1", "no 1"] {
            assert_eq!((Order::read(line), Report::read(line)), (None, None), "{line}");
        }
    }

    #[test]
    fn an_end_is_told_to_shells_in_their_way() {
        assert_eq!(End::Code(3).exit_code(), 3);
        assert_eq!(End::Signal(15).exit_code(), 143);
    }
}
