//! `tenure checkpoint history`.

use serde_json::json;
use tenure_core::DutyKey;
use tenure_core::store::Checkpoint;
use tenure_operate::checkpoint::{CheckpointEntry, describe_signature, history};
use tenure_operate::timestamp;
use tenure_store::signing::Inspected;
use tenure_store::{IfAbsent, StoreUrl};

use super::open_bare;
use crate::failure::Failure;
use crate::output::{document, shown};
use crate::signing;
use crate::table::table;

pub(super) async fn run(
    url: &StoreUrl,
    signing: &signing::SigningSettings,
    duty: &DutyKey,
    json: bool,
) -> Result<String, Failure> {
    let store = open_bare(url, IfAbsent::Refuse).await?;
    let all = history(&*store, signing.keys().ok().as_ref(), duty).await?;
    if json {
        let entry = |(old, seal): &(_, _)| CheckpointEntry::new(duty, old, Some(seal));
        let checkpoints: Vec<_> = all.iter().map(entry).collect();
        return Ok(document(&json!({ "duty": duty.to_string(), "checkpoints": checkpoints })));
    }
    let row = |(old, inspected): &(Checkpoint, Inspected)| {
        [
            old.version.to_string(),
            old.epoch.to_string(),
            timestamp(old.unix_ms),
            inspected.payload.len().to_string(),
            shown(&describe_signature(inspected)),
            shown(old.instance.as_str()),
        ]
    };
    let heads = [">VERSION", ">EPOCH", "WRITTEN_AT", ">BYTES", "SIGNATURE", "INSTANCE"];
    Ok(table(heads, all.iter().map(row)))
}
