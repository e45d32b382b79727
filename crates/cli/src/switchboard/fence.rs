//! `tenure fence`: the newest epoch of each duty that the switchboard has seen.

use clap::Subcommand;
use serde_json::{Value, json};
use tenure_core::{DutyKey, StoreError};
use tenure_switchboard::storage::{KnownFence, NewestHold, SourceScope, Storage};

use super::{at, decision, not_there, scope_shown, scope_value, words};
use crate::args::name;
use crate::failure::Failure;
use crate::output::{DRY_RUN, document, shown, to_stderr};
use crate::table::table;

/// How many are read at a time.
const PAGE: usize = 1000;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the newest epoch of each duty that submitted, by source
    List,
    /// Forget the newest epoch of a duty: the next submission sets it, whatever it is
    Reset {
        /// The duty, as it is printed: GROUP/ID
        duty: String,
        /// Only at the source of this channel [default: at all sources]
        #[arg(long, value_name = "NAME", requires = "provider", requires = "endpoint")]
        channel: Option<String>,
        /// Provider of that source
        #[arg(long, value_name = "NAME", requires = "channel")]
        provider: Option<String>,
        /// Endpoint of that source
        #[arg(long, value_name = "ID", requires = "channel")]
        endpoint: Option<String>,
        /// Why, for the audit trail
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Say what would happen and change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

/// A command that was read and checked.
#[derive(Debug)]
pub(crate) enum Task {
    List,
    Reset { duty: DutyKey, source: Option<SourceScope>, reason: String, dry_run: bool },
}

impl Task {
    pub(crate) fn new(command: &Command) -> Result<Self, Failure> {
        Ok(match command {
            Command::List => Self::List,
            Command::Reset { duty, channel, provider, endpoint, reason, dry_run } => Self::Reset {
                duty: name(duty, str::parse)?,
                source: match (channel.clone(), provider.clone(), endpoint.clone()) {
                    (Some(channel), Some(provider), Some(endpoint_identity)) => {
                        Some(SourceScope { channel, provider, endpoint_identity })
                    }
                    _ => None,
                },
                reason: words("--reason", reason)?,
                dry_run: *dry_run,
            },
        })
    }
}

pub(super) async fn run(storage: &dyn Storage, task: Task, json: bool) -> Result<String, Failure> {
    match task {
        Task::List => list(storage, json).await,
        Task::Reset { duty, source, reason, dry_run } => {
            let (duty, source) = (duty.to_string(), source.as_ref());
            let is_meant = |fence: &KnownFence| {
                fence.newest.duty == duty && (source.is_none() || fence.source.as_ref() == source)
            };
            let was = match dry_run {
                true => all(storage).await?.into_iter().filter(is_meant).collect(),
                false => {
                    let was = storage.reset_fence(&duty, source, &decision(&reason)).await?;
                    was.unwrap_or_default()
                }
            };
            if was.is_empty() {
                return Err(not_there(&duty));
            }
            Ok(reset(&duty, &was, dry_run, json))
        }
    }
}

async fn all(storage: &dyn Storage) -> Result<Vec<KnownFence>, StoreError> {
    let mut fences: Vec<KnownFence> = Vec::new();
    loop {
        let after = fences.last().map(KnownFence::cursor).unwrap_or_default();
        let page = storage.fences(None, &after, PAGE).await?;
        let is_last = page.len() < PAGE;
        fences.extend(page);
        if is_last {
            return Ok(fences);
        }
    }
}

const COLUMNS: [&str; 5] = ["DUTY", "SOURCE", ">EPOCH", "INSTANCE", "SINCE"];

async fn list(storage: &dyn Storage, json: bool) -> Result<String, Failure> {
    let fences = all(storage).await?;
    if json {
        let fences: Vec<Value> = fences.iter().map(value).collect();
        return Ok(document(&json!({ "fences": fences })));
    }
    if fences.is_empty() {
        to_stderr("nothing was submitted under a hold yet");
    }
    let row = |KnownFence { source, newest }: &KnownFence| {
        let NewestHold { duty, epoch, instance, updated_at } = newest;
        let source = source_shown(source.as_ref());
        [shown(duty), source, epoch.to_string(), shown(instance), at(*updated_at)]
    };
    Ok(table(COLUMNS, fences.iter().map(row)))
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
    source.map_or_else(|| "all".to_owned(), |source| scope_shown(Some(source)))
}

fn reset(duty: &str, was: &[KnownFence], dry_run: bool, json: bool) -> String {
    if json {
        let was: Vec<Value> = was.iter().map(value).collect();
        return document(&json!({ "dry_run": dry_run, "duty": duty, "was": was }));
    }
    if dry_run {
        to_stderr(DRY_RUN);
    }
    let did = if dry_run { "would be forgotten" } else { "is forgotten" };
    let line = |KnownFence { source, newest }: &KnownFence| {
        let (source, instance) = (source_shown(source.as_ref()), shown(&newest.instance));
        let epoch = newest.epoch;
        format!(
            "the fence of {} ({source}) {did}: it was epoch {epoch} of {instance}\n",
            shown(duty)
        )
    };
    let lines: String = was.iter().map(line).collect();
    format!(
        "{lines}the next submission under this duty sets it anew, also one of an older holder\n"
    )
}
