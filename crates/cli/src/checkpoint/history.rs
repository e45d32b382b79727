//! `tenure checkpoint history`.

use serde_json::json;
use tenure_core::DutyKey;
use tenure_operate::checkpoint::{StoredVersion, describe_seal, history};
use tenure_operate::timestamp;

use crate::args::Global;
use crate::failure::Failure;
use crate::output::{document, shown};
use crate::signing::SigningSettings;
use crate::table::{or_dash, table};

pub(super) async fn run(
    duty: &DutyKey,
    signing: &SigningSettings,
    global: &Global,
) -> Result<String, Failure> {
    let store = global.open_bare().await?;
    let all = history(&*store, &signing.showing()?, duty).await?;
    if global.json {
        let checkpoints: Vec<_> = all.iter().map(|version| version.json(duty)).collect();
        return Ok(document(&json!({ "duty": duty.to_string(), "checkpoints": checkpoints })));
    }
    let row = |StoredVersion { checkpoint: old, inspected, payload }: &StoredVersion| {
        [
            old.version.to_string(),
            old.epoch.to_string(),
            timestamp(old.unix_ms),
            or_dash(payload.as_ref().map(Vec::len)),
            shown(&describe_seal(inspected)),
            shown(old.instance.as_str()),
        ]
    };
    let heads = [">VERSION", ">EPOCH", "WRITTEN_AT", ">BYTES", "SIGNATURE", "INSTANCE"];
    Ok(table(heads, all.iter().map(row)))
}
