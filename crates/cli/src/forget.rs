//! `tenure forget`: duties that are gone for good.

use serde_json::{Value, json};
use tenure_core::store::{CurrentHolder, Forgotten};
use tenure_core::{Code, DutyKey, Epoch, Reason, Store, StoreError};
use tenure_duty::process;
use tenure_store::{IfAbsent, StoreUrl};

use crate::failure::Failure;
use crate::ls::{millis, or_nothing};
use crate::output::{DRY_RUN, document, to_stderr};
use crate::table::{Align, Column, lay_out};

/// What became of a duty, or would.
struct Outcome {
    duty: DutyKey,
    word: &'static str,
    floor: Option<Epoch>,
    holder: Option<CurrentHolder>,
}

pub(crate) async fn run(
    url: &StoreUrl,
    duties: Vec<DutyKey>,
    dry_run: bool,
    json: bool,
) -> Result<String, Failure> {
    // With the seals on: what was moved away or is badly signed can be forgotten all the same.
    let store = url.open_bare(IfAbsent::Refuse, process::entropy()).await?;
    let forgotten = match dry_run {
        true => foresee(&*store, &duties).await?,
        false => store.forget(&duties, &Reason::new("forget by operator")?).await?,
    };
    let outcomes: Vec<Outcome> = duties.into_iter().zip(forgotten).map(Outcome::new).collect();
    let shown = match json {
        true => {
            let duties: Vec<Value> = outcomes.iter().map(Outcome::value).collect();
            document(&json!({ "dry_run": dry_run, "duties": duties }))
        }
        false => lay_out(&COLUMNS, &outcomes.iter().map(Outcome::row).collect::<Vec<_>>()),
    };
    if dry_run && !json {
        to_stderr(DRY_RUN);
    }
    let held: Vec<String> = outcomes.iter().filter_map(Outcome::complaint).collect();
    if held.is_empty() {
        return Ok(shown);
    }
    let error = StoreError::refused(Code::Held, held.join(", "));
    let kept = match dry_run {
        true => "nothing was changed",
        false => "the duties that are held, as they were; see above for the others",
    };
    Err(Failure::Partly { shown, error, kept })
}

/// What forgetting would answer just now.
async fn foresee(store: &dyn Store, duties: &[DutyKey]) -> Result<Vec<Forgotten>, StoreError> {
    let mut outcomes = Vec::with_capacity(duties.len());
    for duty in duties {
        let holders = store.holders(&duty.group).await?;
        let granted = holders.into_iter().find(|holder| &holder.duty == duty);
        let epoch = granted.as_ref().and_then(|holder| holder.epoch);
        let newest = epoch.max(stored_epoch(store, duty).await?);
        outcomes.push(match (granted.and_then(|holder| holder.holder), newest) {
            (Some(holder), _) => Forgotten::HeldBy(Some(holder)),
            (None, Some(floor)) => Forgotten::Forgotten { floor },
            (None, None) => Forgotten::Absent,
        });
    }
    Ok(outcomes)
}

/// The newest epoch of what is stored, which may be damaged or a ring alone; `None` for nothing.
async fn stored_epoch(store: &dyn Store, duty: &DutyKey) -> Result<Option<Epoch>, StoreError> {
    let damaged = |error: &StoreError| error.code() == Code::Damaged;
    let least = match store.load(std::slice::from_ref(duty)).await {
        Ok(stored) => stored.into_iter().flatten().next().map(|stored| stored.epoch),
        Err(error) if damaged(&error) => Some(Epoch::ZERO),
        Err(error) => return Err(error),
    };
    match store.history(duty).await {
        Ok(ring) => Ok(ring.into_iter().map(|stored| stored.epoch).max().max(least)),
        Err(error) if damaged(&error) => Ok(least.or(Some(Epoch::ZERO))),
        Err(error) => Err(error),
    }
}

const COLUMNS: [Column; 4] = [
    Column("DUTY", Align::Left),
    Column("OUTCOME", Align::Left),
    Column("FLOOR", Align::Right),
    Column("HOLDER", Align::Left),
];

impl Outcome {
    fn new((duty, forgotten): (DutyKey, Forgotten)) -> Self {
        let (word, floor, holder) = match forgotten {
            Forgotten::Forgotten { floor } => ("forgotten", Some(floor), None),
            Forgotten::HeldBy(holder) => ("held", None, holder),
            Forgotten::Absent => ("absent", None, None),
        };
        Self { duty, word, floor, holder }
    }

    fn row(&self) -> [String; 4] {
        [
            self.duty.to_string(),
            self.word.to_owned(),
            or_nothing(self.floor),
            or_nothing(self.holder.as_ref().map(|holder| &holder.instance)),
        ]
    }

    fn value(&self) -> Value {
        let holder = self.holder.as_ref();
        json!({
            "duty": self.duty.to_string(),
            "outcome": self.word,
            "floor": self.floor.map(Epoch::get),
            "holder": holder.map(|holder| holder.instance.to_string()),
            "remaining_ms": holder.map(|holder| millis(holder.remaining)),
        })
    }

    fn complaint(&self) -> Option<String> {
        if self.word != "held" {
            return None;
        }
        let by = self.holder.as_ref().map_or_else(String::new, |holder| {
            format!(" by {} for another {} ms", holder.instance, millis(holder.remaining))
        });
        Some(format!("{} is held{by}", self.duty))
    }
}
