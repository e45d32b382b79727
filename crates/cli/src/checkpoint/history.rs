//! `tenure checkpoint history`: what is still in the ring.

use serde_json::{Value, json};
use tenure_core::store::Checkpoint;
use tenure_core::{DutyKey, Moved};
use tenure_store::signing::{Inspected, inspect, verify};
use tenure_store::{IfAbsent, StoreUrl};

use super::{absent, bare, checkpoint_value, document_value, with};
use crate::failure::Failure;
use crate::output::{document, shown};
use crate::table::{Align, Column, lay_out};
use crate::{signing, time};

const COLUMNS: [Column; 6] = [
    Column("VERSION", Align::Right),
    Column("EPOCH", Align::Right),
    Column("WRITTEN_AT", Align::Left),
    Column("BYTES", Align::Right),
    Column("SIGNATURE", Align::Left),
    Column("INSTANCE", Align::Left),
];

pub(super) async fn run(
    url: &StoreUrl,
    signing: &signing::Settings,
    duty: &DutyKey,
    json: bool,
) -> Result<String, Failure> {
    let store = bare(url, IfAbsent::Refuse).await?;
    let newest = store.load(std::slice::from_ref(duty)).await?.into_iter().next().flatten();
    let ring = store.history(duty).await?;
    let all: Vec<(Checkpoint, Inspected)> = match signing.keys() {
        Ok(keys) => verify(&keys, duty, newest.as_ref(), &ring),
        Err(_) => ring.into_iter().map(|old| (old.clone(), inspect(None, duty, &old))).collect(),
    };
    if all.is_empty() {
        return Err(absent(duty).into());
    }
    if json {
        let entry = |(old, inspected): &(Checkpoint, Inspected)| {
            let value = with(checkpoint_value(duty, old), seal_value(inspected));
            with(value, document_value(&inspected.payload))
        };
        let checkpoints: Vec<Value> = all.iter().map(entry).collect();
        return Ok(document(&json!({ "duty": duty.to_string(), "checkpoints": checkpoints })));
    }
    let row = |(old, inspected): &(Checkpoint, Inspected)| {
        [
            old.version.to_string(),
            old.epoch.to_string(),
            time::shown(old.unix_ms),
            inspected.payload.len().to_string(),
            signature(inspected),
            shown(old.instance.as_str()),
        ]
    };
    Ok(lay_out(&COLUMNS, &all.iter().map(row).collect::<Vec<_>>()))
}

/// The seal for programs.
pub(super) fn seal_value(inspected: &Inspected) -> Value {
    let moved = inspected.seal.moved.as_ref();
    json!({
        "signature": inspected.verdict.as_str(),
        "key": inspected.seal.signed.as_ref().map(|(key, _)| key),
        "mac": inspected.seal.signed.as_ref().map(|(_, mac)| mac.to_string()),
        "prev": inspected.seal.prev.map(|mac| mac.to_string()),
        "moved_to": moved.map(|moved| &moved.to),
        "moving": moved.is_some_and(|moved| !moved.done),
        "from": inspected.seal.origin,
    })
}

/// The seal for people.
pub(super) fn signature(inspected: &Inspected) -> String {
    let mut text = inspected.verdict.as_str().to_owned();
    if let Some((key, _)) = &inspected.seal.signed {
        text = format!("{text} ({})", shown(key));
    }
    match &inspected.seal.moved {
        None => text,
        Some(Moved { to, done: true }) => format!("{text}, moved to {}", shown(to)),
        Some(Moved { to, done: false }) => format!("{text}, moving to {}", shown(to)),
    }
}
