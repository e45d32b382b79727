//! `tenure checkpoint`: arguments, and what is printed.

mod get;
mod history;
mod moving;
mod rewind;
mod verify;

use std::sync::Arc;

use tenure_core::{DutyKey, GroupName, Store, StoreError, Version};
use tenure_duty::process;
use tenure_operate::checkpoint::RewindOptions;
use tenure_operate::pause::Scope;
use tenure_store::{IfAbsent, StoreUrl};

use crate::args::{CheckpointCommand, Schema, name};
use crate::failure::Failure;
use crate::operate::scope;
use crate::signing;

/// A command with checked arguments.
#[derive(Debug)]
pub(crate) struct CheckpointTask {
    signing: signing::SigningSettings,
    action: CheckpointAction,
}

#[derive(Debug)]
enum CheckpointAction {
    Get { store: StoreUrl, duty: DutyKey, lease: bool },
    GetShards { store: StoreUrl, group: GroupName },
    History { store: StoreUrl, duty: DutyKey },
    Verify { store: StoreUrl, scopes: Vec<Scope> },
    Rewind { store: StoreUrl, options: RewindOptions },
    Move(moving::MoveTask),
}

impl CheckpointTask {
    pub(crate) fn new(
        command: &CheckpointCommand,
        signing: signing::SigningSettings,
        store: &str,
    ) -> Result<Self, Failure> {
        let duty_of = |text: &str| name(text, str::parse::<DutyKey>);
        let action = match command {
            CheckpointCommand::Move(given) => CheckpointAction::Move(moving::MoveTask::new(given)?),
            CheckpointCommand::Get { name: text, schema: Schema::Shards } => {
                let group = name(text, GroupName::unescape)?;
                CheckpointAction::GetShards { group, store: StoreUrl::parse(store)? }
            }
            CheckpointCommand::Get { name, schema } => CheckpointAction::Get {
                store: StoreUrl::parse(store)?,
                duty: duty_of(name)?,
                lease: *schema == Schema::Lease,
            },
            CheckpointCommand::History { duty } => {
                CheckpointAction::History { store: StoreUrl::parse(store)?, duty: duty_of(duty)? }
            }
            CheckpointCommand::Verify { names } => {
                CheckpointAction::Verify { store: StoreUrl::parse(store)?, scopes: scopes(names)? }
            }
            CheckpointCommand::Rewind { duty, to, force, dry_run } => {
                let (duty, to) = (duty_of(duty)?, Version::new(*to)?);
                let options = RewindOptions { duty, to, force: *force, dry_run: *dry_run };
                CheckpointAction::Rewind { store: StoreUrl::parse(store)?, options }
            }
        };
        Ok(Self { signing, action })
    }
}

fn scopes(names: &[String]) -> Result<Vec<Scope>, Failure> {
    names.iter().map(|name| scope(name)).collect()
}

pub(crate) async fn run(task: CheckpointTask, json: bool) -> Result<String, Failure> {
    let CheckpointTask { signing, action } = task;
    match action {
        CheckpointAction::Get { store, duty, lease } => {
            get::run(&store, &signing, &duty, lease, json).await
        }
        CheckpointAction::GetShards { store, group } => {
            get::shards(&store, &signing, &group, json).await
        }
        CheckpointAction::History { store, duty } => {
            history::run(&store, &signing, &duty, json).await
        }
        CheckpointAction::Verify { store, scopes } => {
            verify::run(&store, &signing, &scopes, json).await
        }
        CheckpointAction::Rewind { store, options } => {
            rewind::run(&store, &signing, options, json).await
        }
        CheckpointAction::Move(task) => moving::run(&signing, task, json).await,
    }
}

/// Opens a store without signature checks.
async fn open_bare(url: &StoreUrl, if_absent: IfAbsent) -> Result<Arc<dyn Store>, StoreError> {
    url.open_bare(if_absent, process::entropy()).await
}
