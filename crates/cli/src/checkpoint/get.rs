//! `tenure checkpoint get`.

use std::sync::Arc;

use anyhow::Context;
use serde_json::json;
use tenure_core::store::Checkpoint;
use tenure_core::{DutyKey, GroupName, Store, StoreError};
use tenure_duty::process;
use tenure_operate::checkpoint::{
    checkpoint_json, lease_document, newest, no_checkpoint, shards_document,
};
use tenure_operate::timestamp;
use tenure_store::IfAbsent;
use tenure_supervise::api::ApiClient;

use super::unread;
use crate::args::Global;
use crate::failure::Failure;
use crate::output::{document, shown, to_stderr, to_stdout, value};
use crate::signing::SigningSettings;

async fn open(global: &Global, signing: &SigningSettings) -> Result<Arc<dyn Store>, StoreError> {
    let url = global.url()?;
    url.open_signed(IfAbsent::Refuse, process::entropy(), signing.protection()?).await
}

pub(super) async fn run(
    duty: &DutyKey,
    lease: bool,
    signing: &SigningSettings,
    global: &Global,
) -> Result<String, Failure> {
    let store = open(global, signing).await.map_err(unread)?;
    let newest = newest(&*store, duty).await.map_err(unread)?;
    let checkpoint = newest.ok_or_else(|| no_checkpoint(duty))?;
    let payload = checkpoint.document.as_bytes();
    if lease {
        // Unlike `document`, this keeps the keys in the order of the format.
        let text = serde_json::to_string_pretty(&lease_document(&*store, duty, payload).await?);
        return Ok(format!("{}\n", text.context("cannot print the document")?));
    }
    print(duty, &checkpoint, global)
}

fn print(duty: &DutyKey, checkpoint: &Checkpoint, global: &Global) -> Result<String, Failure> {
    if global.json {
        return Ok(document(&checkpoint_json(duty, checkpoint)));
    }
    let Checkpoint { version, epoch, instance, unix_ms, .. } = checkpoint;
    let (by, at) = (shown(instance.as_str()), timestamp(*unix_ms));
    to_stderr(&format!("{duty}: version {version}, epoch {epoch}, by {by} at {at}"));
    // Print the exact bytes: a checkpoint need not be text.
    to_stdout(checkpoint.document.as_bytes())?;
    Ok(String::new())
}

/// Prints the checkpoint of the duty that this command runs under.
pub(super) async fn under_hold(global: &Global) -> Result<String, Failure> {
    let api = ApiClient::from_env()?.ok_or_else(|| {
        let what =
            "name a duty as GROUP/ID: this command has no hold of `tenure run`, `cron` or `poll`";
        Failure::Usage(what.to_owned())
    })?;
    let duty: DutyKey = api.hold().await.map_err(unread)?.duty.parse()?;
    let checkpoint = api.checkpoint().await.map_err(unread)?;
    let checkpoint = checkpoint.ok_or_else(|| no_checkpoint(&duty))?;
    print(&duty, &checkpoint, global)
}

pub(super) async fn shards(
    group: &GroupName,
    signing: &SigningSettings,
    global: &Global,
) -> Result<String, Failure> {
    let shards = value(&shards_document(&*open(global, signing).await?, group).await?);
    let wrapped = json!({ "group": group.to_string(), "document": shards });
    Ok(global.show(&wrapped, || document(&shards)))
}
