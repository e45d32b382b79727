//! `tenure checkpoint history`.

use serde_json::json;
use tenure_core::DutyKey;
use tenure_core::store::Checkpoint;
use tenure_operate::checkpoint::{checkpoint_json, describe_signature, history};
use tenure_operate::timestamp;
use tenure_store::signing::Inspected;

use crate::args::Global;
use crate::failure::Failure;
use crate::output::{document, shown};
use crate::signing::SigningSettings;
use crate::table::table;

pub(super) async fn run(
    duty: &DutyKey,
    signing: &SigningSettings,
    global: &Global,
) -> Result<String, Failure> {
    let store = global.open_bare().await?;
    let all = history(&*store, signing.keys().ok().as_ref(), duty).await?;
    if global.json {
        let entry = |(old, seal): &(_, _)| checkpoint_json(duty, old, Some(seal));
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
