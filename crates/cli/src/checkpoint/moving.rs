//! `tenure checkpoint move`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tenure_core::{Code, Store, StoreError};
use tenure_duty::process;
use tenure_operate::checkpoint::{
    CheckpointMove, MoveEvent, MoveFormat, MoveOptions, MoveSide, MovedBatch, first_shard,
};
use tenure_store::{IfAbsent, StoreUrl};

use super::{MoveArgs, Schema, scopes};
use crate::args::{group_name, name};
use crate::doctor;
use crate::failure::Failure;
use crate::output::{document, shown, to_stderr};
use crate::progress;
use crate::signing::SigningSettings;

pub(super) async fn run(
    args: &MoveArgs,
    signing: &SigningSettings,
    json: bool,
) -> Result<String, Failure> {
    let (urls, options) = checked(args)?;
    let from = open_bare(&urls[0], IfAbsent::Refuse).await?;
    let batches = options.batches(&*from).await?;
    if options.merge && batches.iter().all(Vec::is_empty) {
        let detail = format!("{} has no duties to merge", urls[0]);
        return Err(StoreError::refused(Code::NotThere, detail).into());
    }
    if options.rename.is_some() && batches.len() > 1 {
        let found = batches.len();
        return Err(Failure::Usage(format!(
            "--as names one duty, but {found} would be moved; name one, or use --merge"
        )));
    }
    let to = open_target(&urls[1], args).await?;
    let side = |store, url: &StoreUrl| {
        let protection = signing.protection()?;
        Ok::<_, StoreError>(MoveSide { store, address: url.place(), protection })
    };
    let (from, to) = (side(from, &urls[0])?, side(to, &urls[1])?);
    let stop = stop_on_signal();
    let mut observe = |event: MoveEvent<'_>| {
        if let MoveEvent::Batch(n, all, _) = event {
            progress::describe(&format!("moving checkpoints: {n} of {all} done"));
        }
        to_stderr(&match event {
            MoveEvent::Batch(n, all, batch) => format!("{n} of {all}: {}", text(batch)),
            MoveEvent::WaitingForOther => {
                "an interrupted move still holds this; waiting for its lease to expire".to_owned()
            }
        });
    };
    let carrying = CheckpointMove::new(&options, from, to, &stop, &mut observe)?;
    let (moved, ended) = carrying.run(&batches).await?;
    report(&urls, options.dry_run, &moved, ended, json)
}

/// Checks the arguments. Returns the URLs of both stores, and the options of the move.
fn checked(args: &MoveArgs) -> Result<([StoreUrl; 2], MoveOptions), Failure> {
    let scopes = scopes(&args.names)?;
    let (from, to) = (StoreUrl::parse(&args.from)?, StoreUrl::parse(&args.to)?);
    let rename = args.rename.as_deref().map(|text| match args.schema {
        Schema::Shards => Ok(first_shard(&group_name(text)?)?),
        _ => name(text, str::parse),
    });
    let rename = rename.transpose()?;
    if from.place() == to.place() && rename.is_none() {
        return Err(Failure::Usage("FROM and TO are the same store".to_owned()));
    }
    if args.merge && args.schema != Schema::Plain {
        return Err(Failure::Usage("--merge takes cursors, not other documents".to_owned()));
    }
    let format = match args.schema {
        Schema::Plain => MoveFormat::Plain,
        Schema::Lease => MoveFormat::Lease,
        Schema::Shards => MoveFormat::Shards,
    };
    let MoveArgs { merge, force, dry_run, .. } = *args;
    Ok(([from, to], MoveOptions { scopes, rename, merge, format, force, dry_run }))
}

/// Opens a store without signature checks.
async fn open_bare(url: &StoreUrl, if_absent: IfAbsent) -> Result<Arc<dyn Store>, StoreError> {
    url.open_bare(if_absent, process::entropy()).await
}

/// Opens TO, or creates it, and checks its guarantee.
async fn open_target(url: &StoreUrl, args: &MoveArgs) -> Result<Arc<dyn Store>, Failure> {
    let (to, created) = match open_bare(url, IfAbsent::Refuse).await {
        Err(error) if error.code() == Code::Absent && !args.dry_run => {
            (open_bare(url, IfAbsent::Create).await?, true)
        }
        opened => (opened?, false),
    };
    match doctor::at_start(&*to, args.require).await {
        Err(error) if created => {
            let kept = "every checkpoint; an empty store was created at TO";
            Err(Failure::from(error).keeping(kept))
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
            to_stderr("stopping after the current batch; press Ctrl-C again to stop at once");
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
    let outcome = match &batch.error {
        None => batch.outcome.to_owned(),
        Some(error) => shown(&error.problem().to_string()),
    };
    format!("{names}{target}: {outcome}")
}

fn report(
    urls: &[StoreUrl; 2],
    dry_run: bool,
    moved: &[MovedBatch],
    ended: Option<StoreError>,
    json: bool,
) -> Result<String, Failure> {
    let [from, to] = urls.each_ref().map(ToString::to_string);
    let good = moved.iter().filter(|batch| batch.is_moved()).count();
    let text = match json {
        true => document(&json!({ "from": from, "to": to, "dry_run": dry_run, "moves": moved })),
        false => {
            let would = if dry_run { "would be moved" } else { "moved" };
            format!("{good} of {} {would} from {} to {}\n", moved.len(), shown(&from), shown(&to))
        }
    };
    let refused = || moved.iter().find_map(|batch| batch.error.clone());
    let Some(error) = ended.or_else(refused) else {
        return Ok(text);
    };
    let kept = match (error.is_unknown(), good) {
        (true, _) => "the move may have happened: run the same command again",
        (false, 0) => "nothing was changed",
        (false, _) => "the refused duties, unchanged; see above for the others",
    };
    Err(Failure::partly(text, error, kept))
}
