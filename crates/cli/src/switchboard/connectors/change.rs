//! `tenure connectors archive`, `delete`, `recount` and `add`: what operators change.

use serde_json::json;
use tenure_switchboard::liveness::{Liveness, Policy};
use tenure_switchboard::storage::{ConnectorDetail, ConnectorKey, Storage};
use tenure_switchboard::view;

use super::super::{decision, operator, words};
use super::{NameArgs, named, not_there};
use crate::failure::Failure;
use crate::output::{DRY_RUN, document, to_stderr};

#[derive(clap::Args)]
pub(crate) struct ChangeArgs {
    #[command(flatten)]
    name: NameArgs,
    /// Why, for the audit trail
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Say what would happen and change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(clap::Args)]
pub(crate) struct ArchiveArgs {
    #[command(flatten)]
    pub(super) change: ChangeArgs,
    /// Take it back among the others
    #[arg(long)]
    pub(super) undo: bool,
}

/// What is to be changed, and why.
#[derive(Debug)]
pub(crate) struct Change {
    name: ConnectorKey,
    reason: String,
    dry_run: bool,
}

impl Change {
    pub(super) fn new(args: &ChangeArgs) -> Result<Self, Failure> {
        let reason = words("--reason", &args.reason)?;
        Ok(Self { name: args.name.read()?, reason, dry_run: args.dry_run })
    }

    pub(super) async fn archive(
        &self,
        archived: bool,
        storage: &dyn Storage,
        json: bool,
    ) -> Result<String, Failure> {
        let Self { name, reason, dry_run } = self;
        let found = find(storage, name).await?;
        let changed = match dry_run {
            true => found.connector.archived_at.is_some() != archived,
            false => {
                let changed = storage.archive(name, archived, &decision(reason)).await?;
                changed.unwrap_or_default().ok_or_else(|| not_there(name))?
            }
        };
        if json {
            return Ok(document(&json!({
                "dry_run": dry_run,
                "connector_type": name.connector_type,
                "endpoint_identity": name.endpoint_identity,
                "archived": archived,
                "changed": changed,
            })));
        }
        if *dry_run {
            to_stderr(DRY_RUN);
        }
        if changed && archived && lives(&found) {
            to_stderr("it lives: its next heartbeat brings it back");
        }
        let did = match (changed, archived, dry_run) {
            (false, true, _) => "was archived before",
            (false, false, _) => "is not archived",
            (true, true, false) => "is archived: lists and sums leave it out, its history stays",
            (true, true, true) => "would be archived",
            (true, false, false) => "is no longer archived",
            (true, false, true) => "would be taken back",
        };
        Ok(format!("{} {did}\n", named(name)))
    }

    pub(super) async fn delete(
        &self,
        storage: &dyn Storage,
        json: bool,
    ) -> Result<String, Failure> {
        let Self { name, reason, dry_run } = self;
        let found = find(storage, name).await?;
        if !*dry_run && !storage.delete(name, &decision(reason)).await?.unwrap_or_default() {
            return Err(not_there(name));
        }
        if json {
            return Ok(document(&json!({
                "dry_run": dry_run,
                "connector_type": name.connector_type,
                "endpoint_identity": name.endpoint_identity,
                "deleted": !dry_run,
            })));
        }
        if *dry_run {
            to_stderr(DRY_RUN);
        }
        if lives(&found) {
            to_stderr("it lives: its next heartbeat registers it anew");
        }
        let did = if *dry_run { "would be deleted" } else { "is deleted" };
        Ok(format!("{} {did}, with its history and its statistics\n", named(name)))
    }

    pub(super) async fn recount(
        &self,
        storage: &dyn Storage,
        json: bool,
    ) -> Result<String, Failure> {
        let Self { name, reason, dry_run } = self;
        let since = match dry_run {
            true => find(storage, name).await.map(|_| None)?,
            false => {
                let since = storage.recount(name, &decision(reason)).await?.unwrap_or_default();
                Some(view::time(since.ok_or_else(|| not_there(name))?))
            }
        };
        if json {
            return Ok(document(&json!({
                "dry_run": dry_run,
                "connector_type": name.connector_type,
                "endpoint_identity": name.endpoint_identity,
                "recounted": !dry_run,
                "since": since,
            })));
        }
        let kept = "what was counted before stays, because its heartbeats are gone";
        Ok(match since {
            Some(since) => format!("{} is counted again from {since} on; {kept}\n", named(name)),
            None => {
                to_stderr(DRY_RUN);
                let from = "from the first day of which the history has every heartbeat";
                format!("{} would be counted again {from}; {kept}\n", named(name))
            }
        })
    }
}

/// Makes a connector known before it beats, so that it is missed if it never does.
pub(super) async fn add(
    storage: &dyn Storage,
    name: &ConnectorKey,
    json: bool,
) -> Result<String, Failure> {
    let added = storage.register(name, &operator()).await?;
    if json {
        return Ok(document(&json!({
            "connector_type": name.connector_type,
            "endpoint_identity": name.endpoint_identity,
            "added": added,
        })));
    }
    let did = match added {
        true => "is known now; its liveness is unknown until it is heard",
        false => "was known before",
    };
    Ok(format!("{} {did}\n", named(name)))
}

async fn find(storage: &dyn Storage, name: &ConnectorKey) -> Result<ConnectorDetail, Failure> {
    storage.connector(name).await?.ok_or_else(|| not_there(name))
}

/// Whether it is likely to be heard again soon, for a warning.
fn lives(found: &ConnectorDetail) -> bool {
    let ConnectorDetail { now, connector, .. } = found;
    let judged = Policy::Usual.judge(*now, connector.last_heartbeat_at, connector.interval);
    judged == Liveness::Online
}
