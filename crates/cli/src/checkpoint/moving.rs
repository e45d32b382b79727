//! `tenure checkpoint move`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tenure_core::guarantee::Level;
use tenure_core::{Code, Store, StoreError};
use tenure_operate::checkpoint::{
    CheckpointMove, MoveEvent, MoveFormat, MoveOptions, MoveSide, MovedBatch, first_shard,
};
use tenure_store::{IfAbsent, StoreUrl};

use super::{open_bare, scopes};
use crate::args::{self, Schema, group_name, name};
use crate::doctor;
use crate::failure::Failure;
use crate::output::{document, shown, to_stderr};
use crate::signing;

/// A move with checked arguments.
#[derive(Debug)]
pub(crate) struct MoveTask {
    from: StoreUrl,
    to: StoreUrl,
    options: MoveOptions,
    require: Option<Level>,
}

impl MoveTask {
    pub(super) fn new(given: &args::MoveArgs) -> Result<Self, Failure> {
        let scopes = scopes(&given.names)?;
        let (from, to) = (StoreUrl::parse(&given.from)?, StoreUrl::parse(&given.to)?);
        let rename = given.rename.as_deref().map(|text| match given.schema {
            Schema::Shards => Ok(first_shard(&group_name(text)?)?),
            _ => name(text, str::parse),
        });
        let rename = rename.transpose()?;
        if from.place() == to.place() && rename.is_none() {
            return Err(Failure::Usage("FROM and TO are the same store".to_owned()));
        }
        if given.merge && given.schema != Schema::Plain {
            return Err(Failure::Usage("--merge takes cursors, not other documents".to_owned()));
        }
        let args::MoveArgs { merge, force, dry_run, .. } = *given;
        let format = match given.schema {
            Schema::Plain => MoveFormat::Plain,
            Schema::Lease => MoveFormat::Lease,
            Schema::Shards => MoveFormat::Shards,
        };
        let options = MoveOptions { scopes, rename, merge, format, force, dry_run };
        let require = given.require.as_deref().and_then(Level::parse);
        Ok(Self { from, to, options, require })
    }
}

pub(super) async fn run(
    signing: &signing::SigningSettings,
    task: MoveTask,
    json: bool,
) -> Result<String, Failure> {
    let MoveTask { from: from_url, to: to_url, options, .. } = &task;
    let from = open_bare(from_url, IfAbsent::Refuse).await?;
    let batches = options.batches(&*from).await?;
    if options.merge && batches.iter().all(Vec::is_empty) {
        let detail = format!("{from_url} has no duties to merge");
        return Err(StoreError::refused(Code::NotThere, detail).into());
    }
    if options.rename.is_some() && batches.len() > 1 {
        let found = batches.len();
        return Err(Failure::Usage(format!(
            "--as names one duty, but {found} would be moved; name one, or use --merge"
        )));
    }
    let to = open_target(&task).await?;
    let side = |store, url: &StoreUrl| {
        Ok::<_, StoreError>(MoveSide { store, address: url.place(), signing: signing.signing()? })
    };
    let (from, to) = (side(from, from_url)?, side(to, to_url)?);
    let stop = stop_on_signal();
    let mut observe = |event: MoveEvent<'_>| {
        to_stderr(&match event {
            MoveEvent::Batch(n, all, batch) => format!("{n} of {all}: {}", text(batch)),
            MoveEvent::WaitingForOther => {
                "an interrupted move still holds this; waiting for its lease to expire".to_owned()
            }
        });
    };
    let carrying = CheckpointMove::new(options, from, to, &stop, &mut observe)?;
    let (moved, ended) = carrying.run(&batches).await?;
    report(&task, &moved, ended, json)
}

/// Opens TO, or creates it, and checks its guarantee.
async fn open_target(task: &MoveTask) -> Result<Arc<dyn Store>, Failure> {
    let (to, made) = match open_bare(&task.to, IfAbsent::Refuse).await {
        Err(error) if error.code() == Code::Absent && !task.options.dry_run => {
            (open_bare(&task.to, IfAbsent::Create).await?, true)
        }
        opened => (opened?, false),
    };
    match doctor::at_start(&*to, task.require).await {
        Err(error) if made => {
            let kept = "every checkpoint; an empty store was created at TO";
            Err(Failure::Partly { shown: String::new(), error, kept })
        }
        done => Ok(done.map(|()| to)?),
    }
}

/// Lets Ctrl-C stop the move after the current batch; a second one stops at once.
fn stop_on_signal() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let requested = stop.clone();
    tokio::spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() {
            if requested.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
            to_stderr("stopping after this one; once more to stop at once");
        }
    });
    stop
}

fn text(batch: &MovedBatch) -> String {
    let MovedBatch { duties, target, .. } = batch;
    let names = duties.iter().map(ToString::to_string).collect::<Vec<_>>().join(" + ");
    let target = match batch.shards {
        true => format!(" as the shards of {target}"),
        false if names == *target => String::new(),
        false => format!(" as {target}"),
    };
    let outcome = match &batch.cause {
        None => batch.outcome.to_owned(),
        Some(error) => shown(&error.problem().to_string()),
    };
    format!("{names}{target}: {outcome}")
}

fn report(
    task: &MoveTask,
    moved: &[MovedBatch],
    ended: Option<StoreError>,
    json: bool,
) -> Result<String, Failure> {
    let (from, to) = (task.from.to_string(), task.to.to_string());
    let good = moved.iter().filter(|batch| batch.is_moved()).count();
    let dry_run = task.options.dry_run;
    let text = match json {
        true => document(&json!({ "from": from, "to": to, "dry_run": dry_run, "moves": moved })),
        false => {
            let would = if dry_run { "would be moved" } else { "moved" };
            format!("{good} of {} {would} from {} to {}\n", moved.len(), shown(&from), shown(&to))
        }
    };
    let refused = || moved.iter().find_map(|batch| batch.cause.clone());
    let Some(error) = ended.or_else(refused) else {
        return Ok(text);
    };
    let kept = match (error.is_unknown(), good) {
        (true, _) => "the move may have happened: run the same command again",
        (false, 0) => "nothing was changed",
        (false, _) => "the refused duties, unchanged; see above for the others",
    };
    Err(Failure::Partly { shown: text, error, kept })
}
