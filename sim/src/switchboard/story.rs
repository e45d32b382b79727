//! Record of a run, for the checkers.

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
    /// Nothing was stored for another reason.
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
    /// Submissions were committed, in this order; in one group if `is_group`.
    Committed {
        /// Virtual time.
        at: Micros,
        /// The store's clock.
        wall: i64,
        /// The submissions.
        sent: Vec<SentSubmission>,
        /// Whether one transaction stored them.
        is_group: bool,
    },
    /// An observer read all new messages: positions and ids.
    Observed(Vec<(i64, Uuid)>),
    /// An observer read the whole inbox.
    Inventory {
        /// Virtual time.
        at: Micros,
        /// Messages before this time must be gone.
        stored_after: Micros,
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
    /// The revocation of a token was answered.
    TokenRevoked(usize),
    /// The fences of a duty were forgotten.
    FenceReset(usize),
    /// Dedupe keys were deleted.
    KeysPruned(Micros),
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
    /// A heartbeat was stored.
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
    /// Series of a connector.
    Series {
        /// The connector.
        connector: usize,
        /// All hours.
        hours: Vec<SeriesBucket>,
        /// All days.
        days: Vec<SeriesBucket>,
    },
    /// The liveness of a connector at the end.
    Judged {
        /// The connector.
        connector: usize,
        /// Time since its last heartbeat was stored.
        silent: Micros,
        /// Whether it still sends heartbeats.
        beats: bool,
        /// Its liveness.
        liveness: Liveness,
    },
    /// A copy of the database was made; they are numbered from 0.
    BackedUp,
    /// The database was replaced by this copy.
    Restored(usize),
    /// The inbox was adopted, with this floor.
    Adopted(i64),
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

/// A stored heartbeat.
#[derive(Clone, Copy, Debug)]
pub struct SentBeat {
    /// The store's clock.
    pub wall: i64,
    /// The connector.
    pub connector: usize,
    /// Number of its process.
    pub instance: u64,
    /// Counter `messages_ingested`; half of it is `messages_failed`.
    pub done: i64,
    /// Number of its token, and whether that had ended, as answered.
    pub token: Option<usize>,
    /// The answer: the token had ended, and nothing was stored.
    pub is_ended: bool,
    /// Time of receipt, as answered.
    pub received_at: i64,
    /// Whether a newer one was known, as answered.
    pub late: bool,
    /// Uptime in seconds.
    pub uptime_s: i64,
    /// Time of sending, in Unix microseconds.
    pub sent_at: i64,
}
