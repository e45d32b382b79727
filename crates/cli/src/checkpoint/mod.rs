//! `tenure checkpoint`: what holders remember.

mod get;
mod history;
mod moving;
mod rewind;
mod verify;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tenure_core::store::Checkpoint;
use tenure_core::{DutyKey, GroupName, Reason, Store, StoreError, Ttl, Version};
use tenure_duty::process;
use tenure_store::transfer::Operator;
use tenure_store::{IfAbsent, StoreUrl};

use crate::args::{Checkpoint as Command, Schema, name};
use crate::failure::Failure;
use crate::{signing, time};

/// What to do, read and checked.
#[derive(Debug)]
pub(crate) enum Action {
    Get { store: StoreUrl, signing: signing::Settings, duty: DutyKey, lease: bool },
    GetShards { store: StoreUrl, signing: signing::Settings, group: GroupName },
    History { store: StoreUrl, signing: signing::Settings, duty: DutyKey },
    Verify { store: StoreUrl, signing: signing::Settings, names: Vec<Name> },
    Rewind { store: StoreUrl, signing: signing::Settings, rewind: rewind::Rewind },
    Move { signing: signing::Settings, moving: moving::Moving },
}

/// A duty, or all duties of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    Duty(DutyKey),
    Group(GroupName),
}

impl Name {
    fn parse(text: &str) -> Result<Self, Failure> {
        match text.contains('/') {
            true => Ok(Self::Duty(duty_of(text)?)),
            false => Ok(Self::Group(group_of(text)?)),
        }
    }
}

fn duty_of(text: &str) -> Result<DutyKey, Failure> {
    name(text, str::parse)
}

fn group_of(text: &str) -> Result<GroupName, Failure> {
    name(text, GroupName::unescape)
}

impl Action {
    pub(crate) fn new(
        command: &Command,
        signing: signing::Settings,
        store: &str,
    ) -> Result<Self, Failure> {
        let names = |names: &[String]| names.iter().map(|name| Name::parse(name)).collect();
        Ok(match command {
            Command::Move(given) => {
                let names: Result<Vec<Name>, Failure> = names(&given.names);
                Self::Move { signing, moving: moving::Moving::new(given, names?)? }
            }
            Command::Get { name, schema: Schema::Shards } => {
                let group = group_of(name)?;
                Self::GetShards { store: StoreUrl::parse(store)?, signing, group }
            }
            Command::Get { name, schema } => Self::Get {
                store: StoreUrl::parse(store)?,
                signing,
                duty: duty_of(name)?,
                lease: *schema == Schema::Lease,
            },
            Command::History { duty } => {
                Self::History { store: StoreUrl::parse(store)?, signing, duty: duty_of(duty)? }
            }
            Command::Verify { names: given } => {
                Self::Verify { store: StoreUrl::parse(store)?, signing, names: names(given)? }
            }
            Command::Rewind { duty, to, force, dry_run } => {
                let (duty, to) = (duty_of(duty)?, Version::new(*to)?);
                let rewind = rewind::Rewind { duty, to, force: *force, dry_run: *dry_run };
                Self::Rewind { store: StoreUrl::parse(store)?, signing, rewind }
            }
        })
    }
}

pub(crate) async fn run(action: Action, json: bool) -> Result<String, Failure> {
    match action {
        Action::Get { store, signing, duty, lease } => {
            get::one(&store, &signing, &duty, lease, json).await
        }
        Action::GetShards { store, signing, group } => {
            get::shards(&store, &signing, &group, json).await
        }
        Action::History { store, signing, duty } => {
            history::run(&store, &signing, &duty, json).await
        }
        Action::Verify { store, signing, names } => {
            verify::run(&store, &signing, &names, json).await
        }
        Action::Rewind { store, signing, rewind } => {
            rewind::run(&store, &signing, rewind, json).await
        }
        Action::Move { signing, moving } => moving::run(&signing, moving, json).await,
    }
}

/// The store with its seals on.
async fn bare(url: &StoreUrl, if_absent: IfAbsent) -> Result<Arc<dyn Store>, StoreError> {
    url.open_bare(if_absent, process::entropy()).await
}

/// Long enough for a slow store, short enough to be waited for after a kill.
const TTL: Duration = Duration::from_secs(15);

/// This process as one who acts on checkpoints.
fn operator(why: &str, force: bool) -> Result<Operator, StoreError> {
    Ok(Operator {
        instance: process::instance().id().clone(),
        ttl: Ttl::new(TTL)?,
        reason: Reason::new(why)?,
        force,
        entropy: process::entropy,
    })
}

/// The duties that are named, or all that the store knows, in order and each once.
async fn duties(store: &dyn Store, names: &[Name]) -> Result<Vec<DutyKey>, StoreError> {
    let mut groups = Vec::new();
    let mut duties = Vec::new();
    for name in names {
        match name {
            Name::Duty(duty) => duties.push(duty.clone()),
            Name::Group(group) => groups.push(group.clone()),
        }
    }
    if names.is_empty() {
        groups = store.groups().await?;
    }
    for group in groups {
        duties.extend(store.holders(&group).await?.into_iter().map(|holder| holder.duty));
    }
    duties.sort();
    duties.dedup();
    Ok(duties)
}

/// A document for programs: what it says if it is JSON or text, and its bytes in any case.
fn document_value(payload: &[u8]) -> Value {
    let text = std::str::from_utf8(payload).ok();
    let value = serde_json::from_slice(payload).ok();
    let value = value.or_else(|| text.map(Value::from)).unwrap_or(Value::Null);
    json!({ "document": value, "document_base64": STANDARD.encode(payload) })
}

/// What is known of a checkpoint beside its document.
fn checkpoint_value(duty: &DutyKey, checkpoint: &Checkpoint) -> Value {
    json!({
        "duty": duty.to_string(),
        "version": checkpoint.version.get(),
        "epoch": checkpoint.epoch.get(),
        "instance": checkpoint.instance.to_string(),
        "written_at": time::shown(checkpoint.unix_ms),
    })
}

/// Puts the fields of `more` into `value`.
fn with(mut value: Value, more: Value) -> Value {
    if let (Value::Object(value), Value::Object(more)) = (&mut value, more) {
        value.extend(more);
    }
    value
}

/// No checkpoint of this duty.
fn absent(duty: &DutyKey) -> StoreError {
    StoreError::refused(tenure_core::Code::NoCheckpoint, duty.to_string())
}
