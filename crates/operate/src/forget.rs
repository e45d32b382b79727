//! Forget: removes duties that are gone for good, with their checkpoints and histories.

use serde::Serialize;
use tenure_core::store::{CurrentHolder, Forgotten};
use tenure_core::{Code, DutyKey, Epoch, InstanceId, Reason, Store, StoreError};

use crate::serialize::{millis, optional_epoch, optional_text, text};

/// Outcome for one duty.
#[derive(Clone, Debug, Serialize)]
pub struct ForgetOutcome {
    /// Duty.
    #[serde(serialize_with = "text")]
    pub duty: DutyKey,
    /// `forgotten`, `held` or `absent`.
    pub outcome: &'static str,
    /// Epoch above which a later grant starts.
    #[serde(serialize_with = "optional_epoch")]
    pub floor: Option<Epoch>,
    /// Holder that keeps it from being forgotten.
    #[serde(serialize_with = "optional_text")]
    pub holder: Option<InstanceId>,
    /// Milliseconds until the holder's lease expires.
    pub remaining_ms: Option<u64>,
}

impl ForgetOutcome {
    /// Describes a duty that was not forgotten because it is held.
    pub fn held(&self) -> Option<String> {
        let Self { duty, holder, remaining_ms, .. } = self;
        (self.outcome == HELD).then(|| match (holder, remaining_ms) {
            (Some(holder), Some(ms)) => format!("{duty} is held by {holder} for another {ms} ms"),
            _ => format!("{duty} is held"),
        })
    }
}

const HELD: &str = "held";

/// Forgets duties, or reports what would happen. The store must be open without signature checks,
/// so that checkpoints that were moved or have bad signatures can be forgotten, too.
pub async fn forget(
    store: &dyn Store,
    duties: Vec<DutyKey>,
    dry_run: bool,
) -> Result<Vec<ForgetOutcome>, StoreError> {
    let forgotten = match dry_run {
        true => preview(store, &duties).await?,
        false => store.forget(&duties, &Reason::new("forget by operator")?).await?,
    };
    Ok(duties.into_iter().zip(forgotten).map(ForgetOutcome::from).collect())
}

/// Returns the outcomes that forgetting would have now.
async fn preview(store: &dyn Store, duties: &[DutyKey]) -> Result<Vec<Forgotten>, StoreError> {
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

/// Returns the newest epoch of stored checkpoints, which may be damaged or only in the history.
async fn stored_epoch(store: &dyn Store, duty: &DutyKey) -> Result<Option<Epoch>, StoreError> {
    let damaged = |error: &StoreError| error.code() == Code::Damaged;
    let least = match store.load(std::slice::from_ref(duty)).await {
        Ok(stored) => stored.into_iter().flatten().next().map(|stored| stored.epoch),
        Err(error) if damaged(&error) => Some(Epoch::ZERO),
        Err(error) => return Err(error),
    };
    match store.history(duty).await {
        Ok(history) => Ok(history.into_iter().map(|stored| stored.epoch).max().max(least)),
        Err(error) if damaged(&error) => Ok(least.or(Some(Epoch::ZERO))),
        Err(error) => Err(error),
    }
}

impl From<(DutyKey, Forgotten)> for ForgetOutcome {
    fn from((duty, forgotten): (DutyKey, Forgotten)) -> Self {
        let (outcome, floor, now): (_, _, Option<CurrentHolder>) = match forgotten {
            Forgotten::Forgotten { floor } => ("forgotten", Some(floor), None),
            Forgotten::HeldBy(holder) => (HELD, None, holder),
            Forgotten::Absent => ("absent", None, None),
        };
        let remaining_ms = now.as_ref().map(|now| millis(now.remaining));
        Self { duty, outcome, floor, remaining_ms, holder: now.map(|now| now.instance) }
    }
}
