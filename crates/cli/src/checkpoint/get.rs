//! `tenure checkpoint get`.

use std::sync::Arc;

use anyhow::Context;
use serde_json::json;
use tenure_core::store::Checkpoint;
use tenure_core::{DutyKey, GroupName, Store, StoreError};
use tenure_duty::process;
use tenure_operate::checkpoint::{
    CheckpointEntry, lease_document, newest, no_checkpoint, shards_document,
};
use tenure_operate::timestamp;
use tenure_store::{IfAbsent, StoreUrl};

use crate::failure::Failure;
use crate::output::{bytes_to_stdout, document, report, shown, to_stderr, value};
use crate::signing;

async fn open(
    url: &StoreUrl,
    signing: &signing::SigningSettings,
) -> Result<Arc<dyn Store>, StoreError> {
    url.open_signed(IfAbsent::Refuse, process::entropy(), signing.signing()?).await
}

pub(super) async fn run(
    url: &StoreUrl,
    signing: &signing::SigningSettings,
    duty: &DutyKey,
    lease: bool,
    json: bool,
) -> Result<String, Failure> {
    let store = open(url, signing).await?;
    let checkpoint = newest(&*store, duty).await?.ok_or_else(|| no_checkpoint(duty))?;
    let payload = checkpoint.document.as_bytes();
    if lease {
        // The keys stay in the order of the format.
        let text = serde_json::to_string_pretty(&lease_document(&*store, duty, payload).await?);
        return Ok(format!("{}\n", text.context("cannot print the document")?));
    }
    if json {
        return Ok(report(&CheckpointEntry::new(duty, &checkpoint, None)));
    }
    let Checkpoint { version, epoch, instance, unix_ms, .. } = &checkpoint;
    to_stderr(&format!(
        "{duty}: version {version}, epoch {epoch}, by {} at {}",
        shown(instance.as_str()),
        timestamp(*unix_ms)
    ));
    // Byte for byte, whether or not it is text.
    bytes_to_stdout(payload).context("cannot write to standard output")?;
    Ok(String::new())
}

pub(super) async fn shards(
    url: &StoreUrl,
    signing: &signing::SigningSettings,
    group: &GroupName,
    json: bool,
) -> Result<String, Failure> {
    let store = open(url, signing).await?;
    let shards = value(&shards_document(&*store, group).await?);
    Ok(match json {
        true => document(&json!({ "group": group.to_string(), "document": shards })),
        false => document(&shards),
    })
}
