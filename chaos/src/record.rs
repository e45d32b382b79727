//! Records of an instance: one line in its own file for each action and each response.
//!
//! A line is one `write`, so `kill -9` leaves whole lines, or at most one torn one at the end.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use tenure::store::BootClock;
use tenure::{Clock, Version};

/// Returns nanoseconds since boot: the same clock for every process of this machine.
pub fn now() -> u64 {
    BootClock.now().as_nanos()
}

/// Hold under which an action was done.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Under {
    /// The duty.
    pub duty: String,
    /// The epoch.
    pub epoch: u64,
}

/// Record: one line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceRecord {
    /// The first record, with the writer.
    Hello {
        /// The instance.
        instance: String,
    },
    /// Transition that the engine recorded.
    Record {
        /// Time.
        at: u64,
        /// Name of the change, such as `acquired`.
        change: String,
        /// Duty and epoch, if the record is about a duty.
        under: Option<Under>,
        /// Reason.
        reason: String,
    },
    /// The hold is valid until `until`, as known at `at`; zero if it is lost or suspended.
    Stands {
        /// The hold.
        under: Under,
        /// Time at which this was known.
        at: u64,
        /// First instant without effects.
        until: u64,
    },
    /// Checkpoint that was read.
    Found {
        /// The duty, and the epoch it was written under.
        under: Under,
        /// Its version.
        version: u64,
        /// Instance that wrote it.
        instance: String,
        /// The event.
        event: u64,
    },
    /// Commit of an event, sent at `before` and answered at `after`.
    Commit {
        /// The hold.
        under: Under,
        /// The event.
        event: u64,
        /// Time before it was sent.
        before: u64,
        /// Time after the response.
        after: u64,
        /// Result of the commit.
        outcome: CommitResult,
    },
    /// Effect that only the deadline prevents: the guard was checked at `before`, the effect done
    /// at `after`.
    Plain {
        /// The hold.
        under: Under,
        /// Time before the guard was checked.
        before: u64,
        /// Time of the effect.
        after: u64,
    },
}

/// Whether a change of a hold is a grant.
pub(crate) fn is_grant(change: &str) -> bool {
    change == "acquired" || change == "taken_over"
}

/// Result of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitResult {
    /// Stored as this version.
    Saved(u64),
    /// Accepted by a resource that compares no epochs, for an instance that ignores the fence.
    Unfenced,
    /// Refused by the store, because the hold had ended.
    Refused,
    /// Not sent, because the guard refused it.
    Held,
    /// Unknown outcome.
    Unknown,
}

impl fmt::Display for CommitResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Saved(version) => write!(f, "{version}"),
            Self::Unfenced => f.write_str("unfenced"),
            Self::Refused => f.write_str("refused"),
            Self::Held => f.write_str("held"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

impl fmt::Display for Under {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.duty, self.epoch)
    }
}

impl fmt::Display for InstanceRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hello { instance } => write!(f, "hello {instance}"),
            Self::Record { at, change, under: Some(under), reason } => {
                write!(f, "record {under} {at} {change} {reason}")
            }
            Self::Record { at, change, under: None, reason } => {
                write!(f, "record - 0 {at} {change} {reason}")
            }
            Self::Stands { under, at, until } => write!(f, "stands {under} {at} {until}"),
            Self::Found { under, version, instance, event } => {
                write!(f, "found {under} {version} {instance} {event}")
            }
            Self::Commit { under, event, before, after, outcome } => {
                write!(f, "commit {under} {event} {before} {after} {outcome}")
            }
            Self::Plain { under, before, after } => write!(f, "plain {under} {before} {after}"),
        }
    }
}

impl InstanceRecord {
    /// Returns the approximate time of the record, if it has one.
    pub fn time(&self) -> Option<u64> {
        match self {
            Self::Record { at, .. } | Self::Stands { at, .. } => Some(*at),
            Self::Commit { after, .. } | Self::Plain { after, .. } => Some(*after),
            Self::Hello { .. } | Self::Found { .. } => None,
        }
    }

    /// Parses a record.
    pub fn parse(text: &str) -> Result<Self> {
        let words: Vec<&str> = text.splitn(6, ' ').collect();
        let number = |index: usize| -> Result<u64> {
            let word = words.get(index).with_context(|| format!("too short: {text:?}"))?;
            word.parse().with_context(|| format!("{word:?} in {text:?} is not a number"))
        };
        let word = |index: usize| words.get(index).map_or("", |word| *word).to_owned();
        let under = || Ok::<_, anyhow::Error>(Under { duty: word(1), epoch: number(2)? });
        Ok(match words[0] {
            "hello" => Self::Hello { instance: word(1) },
            "record" => {
                let under = (word(1) != "-").then(under).transpose()?;
                Self::Record { at: number(3)?, change: word(4), under, reason: word(5) }
            }
            "stands" => Self::Stands { under: under()?, at: number(3)?, until: number(4)? },
            "found" => {
                let (instance, event) = (word(4), number(5)?);
                Self::Found { under: under()?, version: number(3)?, instance, event }
            }
            "commit" => {
                let rest = word(5);
                let (after, outcome) =
                    rest.split_once(' ').context("a commit without an outcome")?;
                Self::Commit {
                    under: under()?,
                    event: number(3)?,
                    before: number(4)?,
                    after: after.parse()?,
                    outcome: outcome_of(outcome)?,
                }
            }
            "plain" => Self::Plain { under: under()?, before: number(3)?, after: number(4)? },
            _ => bail!("not a record of an instance: {text:?}"),
        })
    }
}

fn outcome_of(word: &str) -> Result<CommitResult> {
    Ok(match word {
        "unfenced" => CommitResult::Unfenced,
        "refused" => CommitResult::Refused,
        "held" => CommitResult::Held,
        "unknown" => CommitResult::Unknown,
        version => CommitResult::Saved(Version::new(version.parse()?)?.get()),
    })
}

/// The file of one instance.
#[derive(Debug)]
pub(crate) struct Diary(Mutex<File>);

impl Diary {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self(Mutex::new(file)))
    }

    /// Appends one record. Exits on an error: an instance without records must not continue.
    pub(crate) fn write(&self, line: &InstanceRecord) {
        let text = format!("{line}\n");
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if file.write_all(text.as_bytes()).is_err() {
            std::process::exit(70);
        }
    }
}

/// All records of one instance.
#[derive(Clone, Debug)]
pub struct InstanceLog {
    /// Instance that wrote the records.
    pub instance: String,
    /// Records in their order.
    pub lines: Vec<InstanceRecord>,
}

impl InstanceLog {
    /// Reads the file of an instance; `None` when it died before its first line.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // A line without a newline was torn by the kill.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let mut lines = whole.lines().map(InstanceRecord::parse).collect::<Result<Vec<_>>>()?;
        if lines.is_empty() {
            return Ok(None);
        }
        ensure!(
            matches!(lines[0], InstanceRecord::Hello { .. }),
            "{} lacks its first line",
            path.display()
        );
        let InstanceRecord::Hello { instance } = lines.remove(0) else { return Ok(None) };
        Ok(Some(Self { instance, lines }))
    }
}
