//! The bucket that ran last, in a connector's state.

use serde_json::value::RawValue;
use tenure_core::bucket::{Total, short};

use super::Notice;
use super::config::whole;
use crate::object::Object;

/// Member of a state that all connectors share. It has only [`LAST_EXECUTED_FIELD`].
pub const STATE: &str = "__bucket_execution_state";
const LAST_EXECUTED_FIELD: &str = "last_executed_bucket_id";

/// Member of a state that is Tenure's own: the total under which the last bucket ran.
pub const OWN_STATE: &str = "__tenure_bucket_state";
const TOTAL_FIELD: &str = "bucket_total";

/// Returns a member that is not null, and its own members.
fn member<'a>(state: Option<&'a Object>, name: &str) -> Option<(&'a RawValue, Object)> {
    let value = state?.get(name).filter(|value| value.get() != "null")?;
    // A value that is not an object has no members.
    Some((value, Object::read(value.get()).unwrap_or_default()))
}

/// Returns the bucket that ran last: `Err(None)` if none did, `Err(Some(value))` if the state does
/// not name an existing bucket.
pub(super) fn last(state: Option<&Object>, total: Total) -> Result<u64, Option<String>> {
    let (value, within) = member(state, STATE).ok_or(None)?;
    let last = within.get(LAST_EXECUTED_FIELD).and_then(|last| lenient(last.get()));
    last.filter(|last| total.id(*last).is_ok()).ok_or_else(|| Some(short(value.get())))
}

/// Reads a whole number, also as text.
fn lenient(value: &str) -> Option<u64> {
    let text = serde_json::from_str::<String>(value).ok();
    text.map_or_else(|| whole(value), |text| text.trim().parse().ok())
}

/// Returns a notice if the state was written under another total.
pub(super) fn total_changed(state: Option<&Object>, to: Total) -> Option<Notice> {
    let (_, within) = member(state, OWN_STATE)?;
    let from = whole(within.get(TOTAL_FIELD)?.get())?;
    (from != u64::from(to.get())).then_some(Notice::TotalChanged { from, to })
}

/// Copies the rotation from one state to another; everything else stays.
pub fn carry_over(from: &Object, state: Option<Object>) -> Object {
    let mut state = state.unwrap_or_default();
    for name in [STATE, OWN_STATE] {
        if let Some(value) = from.get(name) {
            state.set(name, value.get());
        }
    }
    state
}

/// A chosen bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Executed {
    /// The bucket.
    pub bucket: u32,
    /// Total number of buckets.
    pub total: Total,
}

impl Executed {
    /// Records the bucket in a state; everything else stays.
    pub fn record(self, state: Option<Object>) -> Object {
        let Self { bucket, total } = self;
        let mut state = state.unwrap_or_default();
        state.set(STATE, &format!("{{\"{LAST_EXECUTED_FIELD}\":{bucket}}}"));
        state.set(OWN_STATE, &format!("{{\"{TOTAL_FIELD}\":{total}}}"));
        state
    }
}
