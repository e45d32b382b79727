//! Record of a run, for the checkers.

use std::fmt::{self, Display};

use tenure_switchboard::liveness::Liveness;
use tenure_switchboard::storage::{EventOutcome, SeriesBucket, TokenEnd};
use uuid::Uuid;

use super::Micros;

/// Identity of an event; each source has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKey {
    /// The source numbers its events.
    Number(u64),
    /// Content, and the hour in which it was observed.
    Content(u64, i64),
}

/// An event, as its source sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceEvent {
    /// The source.
    pub source: usize,
    /// The key.
    pub key: EventKey,
    /// The content.
    pub payload: u64,
    /// Time of observation, in Unix microseconds.
    pub observed: i64,
}

/// Hold of a duty under which something was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SentHold {
    /// Number of the duty.
    pub duty: usize,
    /// The epoch.
    pub epoch: u64,
    /// Number of the instance.
    pub instance: u64,
}

/// Answer of the storage to a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubmissionFate {
    /// Outcomes in the order of its events; `None` if the store refused the content.
    Stored(Vec<Option<EventOutcome>>),
    /// A newer hold was seen: its epoch and instance, unless it is of every source.
    Fenced(Option<(u64, u64)>),
    /// The token has ended.
    Ended(TokenEnd),
    /// It failed with this error.
    Failed(String),
}

/// A submission and its answer.
#[derive(Clone, Debug)]
pub struct SentSubmission {
    /// The source of its token and events.
    pub source: usize,
    /// Number of its token.
    pub token: Option<usize>,
    /// Its fence.
    pub hold: Option<SentHold>,
    /// Ids and events.
    pub items: Vec<(Uuid, SourceEvent)>,
    /// The answer of the storage.
    pub fate: SubmissionFate,
}

/// One step of a run. Times `at` are virtual time, `wall` is the store's clock.
#[derive(Clone, Debug)]
pub enum SwitchStep {
    /// A transaction committed submissions, in this order.
    Committed {
        /// The store's clock.
        wall: i64,
        /// The submissions.
        sent: Vec<SentSubmission>,
    },
    /// An observer read all new messages: positions and ids.
    Observed(Vec<(i64, Uuid)>),
    /// Retention deleted messages and keys; then an observer read the whole inbox.
    Pruned {
        /// Number of deleted keys.
        keys: u64,
        /// Positions and ids.
        rows: Vec<(i64, Uuid)>,
        /// Position up to which retention has deleted.
        trimmed: i64,
    },
    /// A reader got a page.
    Page(ReaderPage),
    /// A reader was told that its cursor is not from this inbox.
    Diverged {
        /// The reader.
        reader: usize,
    },
    /// A token was created.
    TokenMade {
        /// Its number.
        token: usize,
        /// Its expiry, by the store's clock.
        expires_at: i64,
    },
    /// The revocation of a token was answered: now, or that it was revoked before.
    TokenRevoked(usize),
    /// The fences of a duty were forgotten.
    FenceReset(usize),
    /// The clock of retention was moved or read.
    Ticked {
        /// Virtual time.
        at: Micros,
        /// Number of its moves.
        turn: i64,
        /// The store's clock.
        wall: i64,
        /// The clock of retention.
        reached: i64,
    },
    /// The clocks are right again for long enough.
    ClocksRight,
    /// A heartbeat was answered.
    Beat(SentBeat),
    /// A connector was deleted.
    ConnectorDeleted(usize),
    /// A connector was archived or restored.
    Archived(usize, bool),
    /// A step of counting.
    Rolled {
        /// The store's clock.
        wall: i64,
        /// Epoch of the hold.
        epoch: u64,
        /// Whether it was refused.
        fenced: bool,
        /// Sums of the periods: connector, messages ingested and failed.
        sums: [Vec<(usize, i64, i64)>; 3],
    },
    /// Retention deleted heartbeats of the history.
    HistoryPruned {
        /// Their retention.
        keep: Micros,
        /// Number of deleted heartbeats.
        deleted: u64,
    },
    /// Series and counters of a connector.
    Series {
        /// The connector.
        connector: usize,
        /// Messages ingested and failed, as its row has them; `None` if it is unknown.
        counters: Option<[i64; 2]>,
        /// All hours.
        hours: Vec<SeriesBucket>,
        /// All days.
        days: Vec<SeriesBucket>,
    },
    /// The list of connectors at the end.
    Listed {
        /// Virtual time.
        at: Micros,
        /// Connectors that still send heartbeats.
        sending: Vec<usize>,
        /// All connectors.
        connectors: Vec<ListedConnector>,
    },
    /// A copy of the database was made; they are numbered from 0.
    BackedUp,
    /// The database was replaced by this copy.
    Restored(usize),
    /// The inbox was adopted.
    Adopted {
        /// The store's clock.
        wall: i64,
        /// Position above which it continues.
        floor: i64,
    },
}

/// A page that a reader got.
#[derive(Clone, Debug, Default)]
pub struct ReaderPage {
    /// The reader.
    pub reader: usize,
    /// Position of its cursor.
    pub after: i64,
    /// Whether the cursor named its message.
    pub tagged: bool,
    /// The source that it filters by.
    pub source: Option<usize>,
    /// Positions and ids.
    pub rows: Vec<(i64, Uuid)>,
    /// Position of the next cursor.
    pub next: i64,
    /// Whether the reader got the answer, and goes on from there.
    pub is_answered: bool,
    /// Whether it is the last page.
    pub at_end: bool,
    /// Position up to which retention may have deleted.
    pub trimmed: i64,
}

/// A connector as the list shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedConnector {
    /// Its number.
    pub connector: usize,
    /// Whether it is archived.
    pub is_archived: bool,
    /// Its liveness.
    pub liveness: Liveness,
}

/// A heartbeat and its answer.
#[derive(Clone, Copy, Debug)]
pub struct SentBeat {
    /// Virtual time.
    pub at: Micros,
    /// The store's clock.
    pub wall: i64,
    /// The connector.
    pub connector: usize,
    /// Number of its process.
    pub instance: u64,
    /// Counter `messages_ingested`; half of it is `messages_failed`.
    pub done: i64,
    /// Number of its token.
    pub token: Option<usize>,
    /// Uptime in seconds.
    pub uptime_s: i64,
    /// Time of sending, in Unix microseconds.
    pub sent_at: i64,
    /// The answer of the storage.
    pub answer: BeatAnswer,
}

/// Answer of the storage to a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeatAnswer {
    /// It was stored.
    Accepted {
        /// Time of receipt, in Unix microseconds.
        received_at: i64,
        /// Whether a newer one was known.
        late: bool,
    },
    /// The token has ended.
    Ended(TokenEnd),
    /// Its token has registered too many connectors.
    TooMany,
}

impl Display for EventKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "#{number}"),
            Self::Content(text, hour) => write!(f, "text {text} of hour {hour}"),
        }
    }
}

impl Display for SentHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "d{} epoch {} of i{}", self.duty, self.epoch, self.instance)
    }
}

/// Displays what was sent and what was answered.
impl Display for SentSubmission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, token, hold, items, fate } = self;
        let keys: Vec<String> = items.iter().map(|(_, event)| event.key.to_string()).collect();
        write!(f, "sends e{source} [{}]", keys.join(", "))?;
        if let Some(hold) = hold {
            write!(f, " under {hold}")?;
        }
        if let Some(token) = token {
            write!(f, " with t{token}")?;
        }
        write!(f, ": {fate}")
    }
}

impl Display for SubmissionFate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stored(outcomes) => {
                let words: Vec<&str> = outcomes.iter().map(describe).collect();
                write!(f, "passed [{}]", words.join(", "))
            }
            Self::Fenced(Some((epoch, instance))) => {
                write!(f, "fenced by epoch {epoch} of i{instance}")
            }
            Self::Fenced(None) => f.write_str("fenced by a hold of every source"),
            Self::Ended(end) => write!(f, "token {end:?}"),
            Self::Failed(why) => write!(f, "failed: {why}"),
        }
    }
}

fn describe(outcome: &Option<EventOutcome>) -> &'static str {
    match outcome {
        None => "refused for its content",
        Some(it) if it.reused => "duplicate with other content",
        Some(it) if it.duplicate => "duplicate",
        Some(_) => "new",
    }
}

impl Display for BeatAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted { late: true, .. } => f.write_str("late"),
            Self::Accepted { .. } => f.write_str("stored"),
            Self::Ended(end) => write!(f, "token {end:?}"),
            Self::TooMany => f.write_str("too many connectors"),
        }
    }
}
