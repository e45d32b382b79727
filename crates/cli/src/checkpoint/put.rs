//! `tenure checkpoint put`.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};
use tenure_core::{Code, Document, DutyKey, StoreError, Version};
use tenure_duty::PutOutcome;
use tenure_operate::OperateError;
use tenure_operate::checkpoint::{Put, PutOptions, holder, newest, put};
use tenure_supervise::api::ApiClient;

use super::{apart, unread};
use crate::args::{Global, name, path};
use crate::failure::Failure;
use crate::output::{note_dry_run, shown};
use crate::signing::SigningSettings;

/// Another version is stored.
const CONFLICT: u8 = 4;

#[derive(clap::Args)]
pub(crate) struct PutArgs {
    /// Duty as GROUP/ID, then a file; under `tenure run` only the file, - for standard input
    #[arg(value_name = "[DUTY] [FILE]", num_args = 0..=2)]
    words: Vec<String>,
    /// Replace only this version; 0 if there must be no checkpoint yet
    #[arg(long, value_name = "VERSION")]
    if_version: Option<u64>,
    /// Take the duty from its holder
    #[arg(long)]
    force: bool,
    /// Print what would happen and change nothing
    #[arg(long)]
    dry_run: bool,
}

pub(super) async fn run(
    args: &PutArgs,
    signing: &SigningSettings,
    global: &Global,
) -> Result<String, Failure> {
    let over = args.if_version.map(Version::new).transpose()?;
    let api = ApiClient::from_env()?;
    match (&args.words[..], api) {
        ([] | [_], Some(api)) => {
            if args.force || args.dry_run {
                let what = "--force and --dry-run need the name of a duty: the hold of `tenure \
                            run` is used without one";
                return Err(Failure::Usage(what.to_owned()));
            }
            let document = read(args.words.first().map_or("-", String::as_str))?;
            under_hold(&api, document, over, global).await
        }
        ([duty, file @ ..], _) => {
            let duty = name(duty, str::parse::<DutyKey>)?;
            let document = read(file.first().map_or("-", String::as_str))?;
            let options = PutOptions { duty, document, over, force: args.force };
            outside(options, args.dry_run, signing, global).await
        }
        ([], None) => Err(Failure::Usage(
            "name a duty as GROUP/ID: this command has no hold of `tenure run`, `cron` or `poll`"
                .to_owned(),
        )),
    }
}

/// Reads the document from a file, or from standard input.
fn read(given: &str) -> Result<Document, Failure> {
    let mut bytes = Vec::new();
    // A larger one is refused, whatever its size.
    let most = Document::MAX_DOCUMENT_BYTES as u64 + 1;
    let (name, read) = match given {
        "-" => ("standard input".to_owned(), io::stdin().lock().take(most).read_to_end(&mut bytes)),
        file => {
            let path: PathBuf = path(Path::new(file))?;
            let file = File::open(&path).map(|file| file.take(most));
            let read = file.and_then(|mut file| file.read_to_end(&mut bytes));
            (path.display().to_string(), read)
        }
    };
    read.with_context(|| format!("cannot read {name}"))?;
    Ok(Document::new(bytes)?)
}

/// Stores through the local API, under the hold that this command was started under.
async fn under_hold(
    api: &ApiClient,
    document: Document,
    over: Option<Version>,
    global: &Global,
) -> Result<String, Failure> {
    match api.put(document, over).await.map_err(apart)? {
        PutOutcome::Stored(version) => {
            let value = json!({ "version": version.get() });
            Ok(global.show(&value, || format!("stored as version {version}\n")))
        }
        PutOutcome::Conflict { newest } => Err(conflict(newest)),
    }
}

/// Claims the duty, stores and releases.
async fn outside(
    options: PutOptions,
    dry_run: bool,
    signing: &SigningSettings,
    global: &Global,
) -> Result<String, Failure> {
    let (url, store) = (global.url()?.to_string(), global.open_bare().await.map_err(apart)?);
    let duty = options.duty.clone();
    let value = |version: Version, more: Value| {
        let (duty, version) = (duty.to_string(), version.get());
        let mut value = json!({ "duty": duty, "dry_run": dry_run, "version": version });
        value.as_object_mut().into_iter().for_each(|value| {
            value.extend(more.as_object().cloned().unwrap_or_default());
        });
        value
    };
    if dry_run {
        let newest = newest(&*store, &duty).await.map_err(unread)?;
        let newest = newest.map_or(Version::ZERO, |newest| newest.version);
        if options.over.is_some_and(|over| over != newest) {
            return Err(conflict(newest));
        }
        let holder = holder(&*store, &duty).await.map_err(unread)?;
        let held_by = holder.map(|holder| shown(holder.as_str()));
        let version = newest.next()?;
        return Ok(global.show(&value(version, json!({ "held_by": held_by })), || {
            note_dry_run(true);
            let held = held_by.as_ref().map(|who| format!("; held by {who}")).unwrap_or_default();
            format!("would store version {version} of {duty}{held}\n")
        }));
    }
    let put = put(store, url, signing.protection()?, options).await;
    let put = put.map_err(|error| match error {
        OperateError::Store(error) if error.code() == Code::Held => {
            apart(error).hinting("take it from its holder with --force")
        }
        OperateError::Store(error) => apart(error),
        error => error.into(),
    })?;
    match put {
        Put::Stored { version, epoch } => Ok(global
            .show(&value(version, json!({ "epoch": epoch.get() })), || {
                format!("{duty}: stored as version {version}, epoch {epoch}\n")
            })),
        Put::Conflict { newest } => Err(conflict(newest)),
    }
}

fn conflict(newest: Version) -> Failure {
    let detail = format!("version {newest} is stored");
    Failure::from(StoreError::refused(Code::OtherVersion, detail)).exiting(CONFLICT)
}
