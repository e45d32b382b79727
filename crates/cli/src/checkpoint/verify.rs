//! `tenure checkpoint verify`: are the signatures good, and is nothing missing?

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenure_core::store::Checkpoint;
use tenure_core::{Code, DutyKey, StoreError};
use tenure_store::signing::{Inspected, Verdict, verify};
use tenure_store::{IfAbsent, StoreUrl};

use super::history::{seal_value, signature};
use super::{Name, bare, checkpoint_value, duties, with};
use crate::failure::Failure;
use crate::output::{document, to_stderr, to_stdout};
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

pub(super) async fn run(
    url: &StoreUrl,
    signing: &signing::Settings,
    names: &[Name],
    json: bool,
) -> Result<String, Failure> {
    let keys = signing.keys()?;
    let store = bare(url, IfAbsent::Refuse).await?;
    let (mut looks, mut without) = (Vec::new(), Vec::new());
    for duty in duties(&*store, names).await? {
        let newest = store.load(std::slice::from_ref(&duty)).await?.into_iter().next().flatten();
        let ring = store.history(&duty).await?;
        let all = verify(&keys, &duty, newest.as_ref(), &ring);
        if all.is_empty() {
            without.push(duty.to_string());
        }
        let look = |(n, (checkpoint, inspected)): (usize, _)| Look {
            duty: duty.clone(),
            checkpoint,
            inspected,
            newest: n == 0 && newest.is_some(),
        };
        looks.extend(all.into_iter().enumerate().map(look));
    }
    let bad = |look: &&Look| match look.inspected.verdict {
        Verdict::Good => false,
        Verdict::Unsigned => signing.is_required(),
        _ => true,
    };
    let faults = looks.iter().filter(bad).count();
    let text = match json {
        true => for_programs(&looks, &without, faults),
        false => for_people(&looks, bad),
    };
    if faults == 0 {
        return Ok(text);
    }
    // The report comes in any case; the error says that it is not good.
    to_stdout(&text).map_err(|error| Failure::Machine(error.into()))?;
    let detail = format!("{faults} of {} checkpoints in {url}", looks.len());
    Err(StoreError::refused(Code::BadSignature, detail).into())
}

/// How many newest checkpoints each key has signed: a key without any can be retired.
fn by_key(looks: &[Look]) -> BTreeMap<String, u64> {
    let mut count = BTreeMap::new();
    for look in looks.iter().filter(|look| look.newest) {
        let key = look.inspected.seal.signed.as_ref();
        let key = key.map_or("(none)", |(key, _)| key.as_str());
        *count.entry(key.to_owned()).or_default() += 1;
    }
    count
}

/// Every newest one, and what is bad in the rings.
fn for_people(looks: &[Look], bad: impl Fn(&&Look) -> bool) -> String {
    let row = |look: &Look| {
        [
            look.duty.to_string(),
            look.checkpoint.version.to_string(),
            look.checkpoint.epoch.to_string(),
            if look.newest { "newest" } else { "history" }.to_owned(),
            signature(&look.inspected),
        ]
    };
    let shown = looks.iter().filter(|look| look.newest || bad(look));
    let rows: Vec<_> = shown.map(row).collect();
    for (key, count) in by_key(looks) {
        to_stderr(&format!("newest checkpoints by key {key}: {count}"));
    }
    lay_out(&COLUMNS, &rows)
}

fn for_programs(looks: &[Look], without: &[String], faults: usize) -> String {
    let entry = |look: &Look| {
        let value =
            with(checkpoint_value(&look.duty, &look.checkpoint), seal_value(&look.inspected));
        with(value, json!({ "newest": look.newest }))
    };
    let checkpoints: Vec<Value> = looks.iter().map(entry).collect();
    document(&json!({
        "checkpoints": checkpoints,
        "newest_by_key": by_key(looks),
        "without_checkpoint": without,
        "faults": faults,
    }))
}
