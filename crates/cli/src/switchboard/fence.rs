//! `tenure fence`: the newest epoch of each duty that the switchboard has seen.

use clap::Subcommand;
use serde_json::{Value, json};
use tenure_core::{DutyKey, StoreError};
use tenure_switchboard::storage::{KnownFence, NewestHold, SourceScope, Storage};

use super::{
    at, change, check_text, decision, list, no_such_token, open, scope_shown, scope_value,
};
use crate::args::{Global, name};
use crate::failure::Failure;
use crate::output::shown;

/// Fences per read.
const PAGE_ROWS: usize = 1000;

#[derive(Subcommand)]
pub(crate) enum FenceCommand {
    /// List the newest epoch of each duty, by source
    List,
    /// Reset the newest epoch of a duty; the next submission sets it
    Reset {
        /// Duty as GROUP/ID
        duty: String,
        /// Channel of the source [default: all sources]
        #[arg(long, value_name = "NAME", requires = "provider", requires = "endpoint")]
        channel: Option<String>,
        /// Provider of the source
        #[arg(long, value_name = "NAME", requires = "channel")]
        provider: Option<String>,
        /// Endpoint identity of the source
        #[arg(long, value_name = "ID", requires = "channel")]
        endpoint: Option<String>,
        /// Reason, for the audit trail
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Print what would happen and change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

pub(crate) async fn run(command: FenceCommand, global: &Global) -> Result<String, Failure> {
    let FenceCommand::Reset { duty, channel, provider, endpoint, reason, dry_run } = command else {
        return Ok(print(&all(&*open(global).await?).await?, global));
    };
    let duty = name(&duty, str::parse::<DutyKey>)?.to_string();
    let source = match (channel, provider, endpoint) {
        (Some(channel), Some(provider), Some(endpoint_identity)) => {
            Some(SourceScope { channel, provider, endpoint_identity })
        }
        _ => None,
    };
    let decision = decision(&check_text("--reason", &reason)?);
    let storage = open(global).await?;
    let matches = |fence: &KnownFence| {
        fence.newest.duty == duty && (source.is_none() || fence.source == source)
    };
    let was: Vec<KnownFence> = match dry_run {
        true => all(&*storage).await?.into_iter().filter(matches).collect(),
        false => storage.reset_fence(&duty, source.as_ref(), &decision).await?.unwrap_or_default(),
    };
    if was.is_empty() {
        return Err(no_such_token(&duty));
    }
    let values: Vec<Value> = was.iter().map(value).collect();
    let values = json!({ "dry_run": dry_run, "duty": duty, "was": values });
    Ok(change(global, dry_run, &values, reset(&duty, &was, dry_run)))
}

async fn all(storage: &dyn Storage) -> Result<Vec<KnownFence>, StoreError> {
    let mut fences: Vec<KnownFence> = Vec::new();
    loop {
        let after = fences.last().map(KnownFence::cursor).unwrap_or_default();
        let page = storage.fences(None, &after, PAGE_ROWS).await?;
        let is_last = page.len() < PAGE_ROWS;
        fences.extend(page);
        if is_last {
            return Ok(fences);
        }
    }
}

fn print(fences: &[KnownFence], global: &Global) -> String {
    let row = |KnownFence { source, newest }: &KnownFence| {
        let NewestHold { duty, epoch, instance, updated_at } = newest;
        let source = source_shown(source.as_ref());
        [shown(duty), source, epoch.to_string(), shown(instance), at(*updated_at)]
    };
    let heads = ["DUTY", "SOURCE", ">EPOCH", "INSTANCE", "SINCE"];
    let empty = "nothing was submitted under a hold yet";
    list(global, ("fences", fences), value, (heads, row), empty)
}

fn value(KnownFence { source, newest }: &KnownFence) -> Value {
    json!({
        "duty": newest.duty,
        "source": scope_value(source.as_ref()),
        "epoch": newest.epoch.get(),
        "instance": newest.instance,
        "since": at(newest.updated_at),
    })
}

fn source_shown(source: Option<&SourceScope>) -> String {
    source.map_or_else(|| "all".to_owned(), scope_shown)
}

fn reset(duty: &str, was: &[KnownFence], dry_run: bool) -> String {
    let did = if dry_run { "would be forgotten" } else { "is forgotten" };
    let line = |KnownFence { source, newest }: &KnownFence| {
        let (source, instance) = (source_shown(source.as_ref()), shown(&newest.instance));
        let (duty, epoch) = (shown(duty), newest.epoch);
        format!("the fence of {duty} ({source}) {did}: it was epoch {epoch} of {instance}\n")
    };
    let lines: String = was.iter().map(line).collect();
    format!("{lines}the next submission under this duty sets it again, even from an older holder\n")
}
