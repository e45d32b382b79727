//! `tenure connectors archive`, `delete`, `recount` and `add`.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_switchboard::liveness::{Liveness, Policy};
use tenure_switchboard::storage::{ConnectorDetail, ConnectorKey, Decision, Storage};
use tenure_switchboard::view;

use super::super::{change, check_text, decision, open, operator};
use super::{ConnectorArgs, find, named, no_such_connector};
use crate::args::Global;
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
    /// Checks the arguments and finds the connector.
    async fn begin<'a>(&self, global: &'a Global) -> Result<ConnectorChange<'a>, Failure> {
        let decision = decision(&check_text("--reason", &self.reason)?);
        let name = self.name.parse()?;
        let storage = open(global).await?;
        let found = find(&*storage, &name).await?;
        Ok(ConnectorChange { global, dry_run: self.dry_run, name, decision, storage, found })
    }
}

/// A change of an existing connector.
struct ConnectorChange<'a> {
    global: &'a Global,
    dry_run: bool,
    name: ConnectorKey,
    decision: Decision,
    storage: Arc<dyn Storage>,
    found: ConnectorDetail,
}

impl ConnectorChange<'_> {
    /// Prints a note if the connector is likely to send a heartbeat soon.
    fn note_if_online(&self, note: &str) {
        let ConnectorDetail { now, connector, .. } = &self.found;
        let judged = Policy::Usual.judge(*now, connector.last_heartbeat_at, connector.interval);
        if judged == Liveness::Online && !self.global.json {
            to_stderr(note);
        }
    }

    fn report(&self, mut value: Value, did: &str) -> String {
        value["dry_run"] = self.dry_run.into();
        report(self.global, self.dry_run, &self.name, value, did)
    }
}

/// Formats a change; adds the name of the connector to the JSON.
fn report(
    global: &Global,
    dry_run: bool,
    name: &ConnectorKey,
    mut value: Value,
    did: &str,
) -> String {
    value["connector_type"] = name.connector_type.as_str().into();
    value["endpoint_identity"] = name.endpoint_identity.as_str().into();
    change(global, dry_run, &value, format!("{} {did}\n", named(name)))
}

pub(super) async fn archive(args: &ArchiveArgs, global: &Global) -> Result<String, Failure> {
    let (change, archived) = (args.change.begin(global).await?, !args.undo);
    let changed = match change.dry_run {
        true => change.found.connector.archived_at.is_some() != archived,
        false => {
            let changed = change.storage.archive(&change.name, archived, &change.decision).await?;
            changed.unwrap_or_default().ok_or_else(|| no_such_connector(&change.name))?
        }
    };
    if changed && archived {
        change.note_if_online("it is online: its next heartbeat will unarchive it");
    }
    let did = match (changed, archived, change.dry_run) {
        (false, true, _) => "was already archived",
        (false, false, _) => "is not archived",
        (true, true, false) => "is archived: it is left out of lists and sums; its history is kept",
        (true, true, true) => "would be archived",
        (true, false, false) => "is no longer archived",
        (true, false, true) => "would be unarchived",
    };
    Ok(change.report(json!({ "archived": archived, "changed": changed }), did))
}

pub(super) async fn delete(args: &ChangeArgs, global: &Global) -> Result<String, Failure> {
    let change = args.begin(global).await?;
    let ConnectorChange { name, decision, dry_run, .. } = &change;
    if !dry_run && !change.storage.delete(name, decision).await?.unwrap_or_default() {
        return Err(no_such_connector(name));
    }
    change.note_if_online("it is online: its next heartbeat will register it again");
    let did = if *dry_run { "would be deleted" } else { "is deleted" };
    let did = format!("{did}, with its history and its statistics");
    Ok(change.report(json!({ "deleted": !dry_run }), &did))
}

pub(super) async fn recount(args: &ChangeArgs, global: &Global) -> Result<String, Failure> {
    let change = args.begin(global).await?;
    let ConnectorChange { name, decision, dry_run, .. } = &change;
    let since = match dry_run {
        true => None,
        false => {
            let since = change.storage.recount(name, decision).await?.unwrap_or_default();
            Some(view::time(since.ok_or_else(|| no_such_connector(name))?))
        }
    };
    let did = match &since {
        Some(since) => format!("is recounted from {since} on"),
        None => "would be recounted from the first day with a complete history".to_owned(),
    };
    let did = format!("{did}; earlier counts stay, because their heartbeats are gone");
    Ok(change.report(json!({ "recounted": !dry_run, "since": since }), &did))
}

/// Registers a connector before its first heartbeat, so that a missing one is noticed.
pub(super) async fn add(name: &ConnectorKey, global: &Global) -> Result<String, Failure> {
    let added = open(global).await?.register(name, &operator()).await?;
    let did = match added {
        true => "is registered; its liveness is unknown until its first heartbeat",
        false => "was already registered",
    };
    Ok(report(global, false, name, json!({ "added": added }), did))
}
