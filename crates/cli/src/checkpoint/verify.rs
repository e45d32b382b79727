//! `tenure checkpoint verify`: are the signatures good, and is nothing missing?

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenure_core::store::Checkpoint;
use tenure_core::text::counted;
use tenure_core::{Code, DutyKey, Store, StoreError};
use tenure_store::signing::{Inspected, Keyring, Verdict, verify};
use tenure_store::{IfAbsent, StoreUrl};

use super::history::{seal_value, signature};
use super::{Name, bare, checkpoint_value, duties, with};
use crate::failure::Failure;
use crate::ls::or_nothing;
use crate::output::{document, shown, to_stderr, to_stdout};
use crate::signing;
use crate::table::{Align, Column, lay_out};

const COLUMNS: [Column; 5] = [
    Column("DUTY", Align::Left),
    Column("VERSION", Align::Right),
    Column("EPOCH", Align::Right),
    Column("PLACE", Align::Left),
    Column("SIGNATURE", Align::Left),
];

/// One checkpoint that was looked at.
struct Look {
    duty: DutyKey,
    checkpoint: Checkpoint,
    inspected: Inspected,
    newest: bool,
}

/// What could not be looked at.
struct Unread {
    duty: DutyKey,
    place: &'static str,
    error: StoreError,
}

/// What was found.
#[derive(Default)]
struct Report {
    looks: Vec<Look>,
    unread: Vec<Unread>,
    /// Duties with neither a checkpoint nor a history.
    without: Vec<String>,
}

const NEWEST: &str = "newest";
const HISTORY: &str = "history";

pub(super) async fn run(
    url: &StoreUrl,
    signing: &signing::Settings,
    names: &[Name],
    json: bool,
) -> Result<String, Failure> {
    let keys = signing.keys()?;
    let store = bare(url, IfAbsent::Refuse).await?;
    let mut report = Report::default();
    for duty in duties(&*store, names).await? {
        report.look_at(&*store, &keys, duty).await?;
    }
    let bad = |look: &&Look| match look.inspected.verdict {
        Verdict::Good => false,
        Verdict::Unsigned => signing.is_required(),
        _ => true,
    };
    let faults = report.looks.iter().filter(bad).count() + report.unread.len();
    let text = match json {
        true => report.for_programs(faults),
        false => report.for_people(bad),
    };
    if faults == 0 {
        return Ok(text);
    }
    // The report comes in any case; the error says that it is not good.
    to_stdout(&text).map_err(|error| Failure::Machine(error.into()))?;
    let all = report.looks.len() + report.unread.len();
    let detail = format!("{faults} of {} in {url}", counted(all, "checkpoint", "checkpoints"));
    Err(StoreError::refused(Code::BadSignature, detail).into())
}

/// Newest and ring of one moment, each unless it is damaged.
struct Read {
    newest: Result<Option<Checkpoint>, StoreError>,
    ring: Result<Vec<Checkpoint>, StoreError>,
}

/// So many commits may come between reading one and the other.
const READS: usize = 8;

/// Reads the ring between two readings of the newest, until both are the same: else a duty that is
/// at work would look like one whose history was changed.
async fn read(store: &dyn Store, duty: &DutyKey) -> Result<Read, StoreError> {
    let mut newest = newest_of(store, duty).await?;
    let mut ring = Ok(Vec::new());
    for _ in 0..READS {
        ring = if_damaged(store.history(duty).await)?;
        let again = newest_of(store, duty).await?;
        let same = matches!((&newest, &again), (Ok(newest), Ok(again)) if newest == again);
        let damaged = newest.is_err() && again.is_err();
        newest = again;
        if same || damaged {
            break;
        }
    }
    Ok(Read { newest, ring })
}

/// What is asked for, or that it is damaged; any other error ends the command.
type IfDamaged<T> = Result<Result<T, StoreError>, StoreError>;

async fn newest_of(store: &dyn Store, duty: &DutyKey) -> IfDamaged<Option<Checkpoint>> {
    let loaded = store.load(std::slice::from_ref(duty)).await;
    if_damaged(loaded.map(|loaded| loaded.into_iter().flatten().next()))
}

fn if_damaged<T>(answer: Result<T, StoreError>) -> IfDamaged<T> {
    match answer {
        Err(error) if error.code() != Code::Damaged => Err(error),
        answer => Ok(answer),
    }
}

impl Report {
    async fn look_at(
        &mut self,
        store: &dyn Store,
        keys: &Keyring,
        duty: DutyKey,
    ) -> Result<(), StoreError> {
        let Read { newest, ring } = read(store, &duty).await?;
        let all = match (&newest, &ring) {
            (Ok(newest), Ok(ring)) => verify(keys, &duty, newest.as_ref(), ring),
            // One of them alone: what it lacks of the other is told once, below.
            (Ok(newest), Err(_)) => {
                let alone: Vec<Checkpoint> = newest.iter().cloned().collect();
                verify(keys, &duty, newest.as_ref(), &alone)
            }
            (Err(_), Ok(ring)) => verify(keys, &duty, ring.first(), ring),
            (Err(_), Err(_)) => Vec::new(),
        };
        if all.is_empty() && newest.is_ok() && ring.is_ok() {
            self.without.push(duty.to_string());
        }
        let is_newest = matches!(newest, Ok(Some(_)));
        let look = |(n, (checkpoint, inspected)): (usize, _)| Look {
            duty: duty.clone(),
            checkpoint,
            inspected,
            newest: n == 0 && is_newest,
        };
        self.looks.extend(all.into_iter().enumerate().map(look));
        let unread = [(NEWEST, newest.err()), (HISTORY, ring.err())];
        self.unread.extend(unread.into_iter().filter_map(|(place, error)| {
            error.map(|error| Unread { duty: duty.clone(), place, error })
        }));
        Ok(())
    }

    /// How many newest checkpoints each key has signed: a key without any can be retired.
    fn by_key(&self) -> BTreeMap<String, u64> {
        let mut count = BTreeMap::new();
        for look in self.looks.iter().filter(|look| look.newest) {
            let key = look.inspected.seal.signed.as_ref();
            let key = key.map_or("(none)", |(key, _)| key.as_str());
            *count.entry(key.to_owned()).or_default() += 1;
        }
        count
    }

    /// Every newest one, and what is bad in the rings.
    fn for_people(&self, bad: impl Fn(&&Look) -> bool) -> String {
        let row = |look: &Look| {
            [
                look.duty.to_string(),
                look.checkpoint.version.to_string(),
                look.checkpoint.epoch.to_string(),
                if look.newest { NEWEST } else { HISTORY }.to_owned(),
                signature(&look.inspected),
            ]
        };
        let unread = |unread: &Unread| {
            [
                unread.duty.to_string(),
                or_nothing(None::<u64>),
                or_nothing(None::<u64>),
                unread.place.to_owned(),
                shown(&unread.error.problem().to_string()),
            ]
        };
        let looks = self.looks.iter().filter(|look| look.newest || bad(look));
        let rows: Vec<_> = looks.map(row).chain(self.unread.iter().map(unread)).collect();
        for (key, count) in self.by_key() {
            to_stderr(&format!("newest checkpoints by key {}: {count}", shown(&key)));
        }
        lay_out(&COLUMNS, &rows)
    }

    fn for_programs(&self, faults: usize) -> String {
        let entry = |look: &Look| {
            let value =
                with(checkpoint_value(&look.duty, &look.checkpoint), seal_value(&look.inspected));
            with(value, json!({ "newest": look.newest }))
        };
        let unread = |unread: &Unread| {
            json!({
                "duty": unread.duty.to_string(),
                "newest": unread.place == NEWEST,
                "code": unread.error.code().as_str(),
                "detail": unread.error.problem().detail,
            })
        };
        document(&json!({
            "checkpoints": self.looks.iter().map(entry).collect::<Vec<Value>>(),
            "unreadable": self.unread.iter().map(unread).collect::<Vec<Value>>(),
            "newest_by_key": self.by_key(),
            "without_checkpoint": self.without,
            "faults": faults,
        }))
    }
}
