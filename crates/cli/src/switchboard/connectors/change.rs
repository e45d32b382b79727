//! `tenure connectors archive`, `delete`, `recount` and `add`.

use serde_json::{Value, json};
use tenure_store::StoreUrl;
use tenure_switchboard::liveness::{Liveness, Policy};
use tenure_switchboard::storage::{ConnectorDetail, ConnectorKey, Decision, Storage};
use tenure_switchboard::view;

use super::super::{change, check_text, decision, open, operator};
use super::{ConnectorArgs, named, no_such_connector};
use crate::failure::Failure;
use crate::output::to_stderr;

#[derive(clap::Args)]
pub(crate) struct ChangeArgs {
    #[command(flatten)]
    name: ConnectorArgs,
    /// Reason, for the audit trail
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Print what would happen and change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(clap::Args)]
pub(crate) struct ArchiveArgs {
    #[command(flatten)]
    pub(super) change: ChangeArgs,
    /// Unarchive the connector
    #[arg(long)]
    pub(super) undo: bool,
}

impl ChangeArgs {
    fn checked(&self) -> Result<(ConnectorKey, Decision), Failure> {
        let reason = check_text("--reason", &self.reason)?;
        Ok((self.name.parse()?, decision(&reason)))
    }
}

/// A JSON object that begins with the name of a connector.
fn value(name: &ConnectorKey, more: Value) -> Value {
    let mut value = more;
    value["connector_type"] = name.connector_type.as_str().into();
    value["endpoint_identity"] = name.endpoint_identity.as_str().into();
    value
}

pub(super) async fn archive(
    url: &StoreUrl,
    args: &ArchiveArgs,
    json: bool,
) -> Result<String, Failure> {
    let ArchiveArgs { change: ChangeArgs { dry_run, .. }, undo } = *args;
    let ((name, decision), archived) = (args.change.checked()?, !undo);
    let storage = open(url).await?;
    let found = find(&*storage, &name).await?;
    let changed = match dry_run {
        true => found.connector.archived_at.is_some() != archived,
        false => {
            let changed = storage.archive(&name, archived, &decision).await?;
            changed.unwrap_or_default().ok_or_else(|| no_such_connector(&name))?
        }
    };
    if !json && changed && archived && is_online(&found) {
        to_stderr("it is online: its next heartbeat brings it back");
    }
    let did = match (changed, archived, dry_run) {
        (false, true, _) => "was archived before",
        (false, false, _) => "is not archived",
        (true, true, false) => "is archived: lists and sums leave it out, its history stays",
        (true, true, true) => "would be archived",
        (true, false, false) => "is no longer archived",
        (true, false, true) => "would be unarchived",
    };
    let more = json!({ "dry_run": dry_run, "archived": archived, "changed": changed });
    Ok(change(json, dry_run, &value(&name, more), format!("{} {did}\n", named(&name))))
}

pub(super) async fn delete(
    url: &StoreUrl,
    args: &ChangeArgs,
    json: bool,
) -> Result<String, Failure> {
    let ((name, decision), dry_run) = (args.checked()?, args.dry_run);
    let storage = open(url).await?;
    let found = find(&*storage, &name).await?;
    if !dry_run && !storage.delete(&name, &decision).await?.unwrap_or_default() {
        return Err(no_such_connector(&name));
    }
    if !json && is_online(&found) {
        to_stderr("it is online: its next heartbeat registers it again");
    }
    let did = if dry_run { "would be deleted" } else { "is deleted" };
    let text = format!("{} {did}, with its history and its statistics\n", named(&name));
    let more = json!({ "dry_run": dry_run, "deleted": !dry_run });
    Ok(change(json, dry_run, &value(&name, more), text))
}

pub(super) async fn recount(
    url: &StoreUrl,
    args: &ChangeArgs,
    json: bool,
) -> Result<String, Failure> {
    let ((name, decision), dry_run) = (args.checked()?, args.dry_run);
    let storage = open(url).await?;
    let since = match dry_run {
        true => find(&*storage, &name).await.map(|_| None)?,
        false => {
            let since = storage.recount(&name, &decision).await?.unwrap_or_default();
            Some(view::time(since.ok_or_else(|| no_such_connector(&name))?))
        }
    };
    let did = match &since {
        Some(since) => format!("is recounted from {since} on"),
        None => "would be recounted from the first day with a complete history".to_owned(),
    };
    let kept = "earlier counts stay, because their heartbeats are gone";
    let more = json!({ "dry_run": dry_run, "recounted": !dry_run, "since": since });
    let text = format!("{} {did}; {kept}\n", named(&name));
    Ok(change(json, dry_run, &value(&name, more), text))
}

/// Registers a connector before its first heartbeat, so that it is missed if none comes.
pub(super) async fn add(
    url: &StoreUrl,
    name: &ConnectorKey,
    json: bool,
) -> Result<String, Failure> {
    let added = open(url).await?.register(name, &operator()).await?;
    let did = match added {
        true => "is known now; its liveness is unknown until its first heartbeat",
        false => "was known before",
    };
    let text = format!("{} {did}\n", named(name));
    Ok(change(json, false, &value(name, json!({ "added": added })), text))
}

async fn find(storage: &dyn Storage, name: &ConnectorKey) -> Result<ConnectorDetail, Failure> {
    storage.connector(name).await?.ok_or_else(|| no_such_connector(name))
}

/// Whether it is likely to send a heartbeat soon.
fn is_online(found: &ConnectorDetail) -> bool {
    let ConnectorDetail { now, connector, .. } = found;
    let judged = Policy::Usual.judge(*now, connector.last_heartbeat_at, connector.interval);
    judged == Liveness::Online
}
