//! What was meant: read, checked, and nothing left open.

use std::path::PathBuf;

use clap_complete::Shell;
use tenure_core::Code;
use tenure_core::guarantee::Level;
use tenure_store::StoreUrl;
use tenure_supervise::guard::Stage;
use tenure_supervise::poll::PollSettings;
use tenure_supervise::run::RunSettings;

use crate::args::{Args, Command, NOT_SHOWN, group_name, may_be_secret, name, path};
use crate::failure::Failure;
use crate::operate::GroupOperation;
use crate::store::Task;
use crate::switchboard::{self, beat, connectors, fence, serve, token};
use crate::{bucket, checkpoint, run, signing};

/// One command and how to answer it.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) json: bool,
    pub(crate) action: Action,
}

/// What to do; only commands that need a store have one, so that the others work without.
#[derive(Debug)]
pub(crate) enum Action {
    Store { store: StoreUrl, task: Task },
    Migrate { store: StoreUrl, print: bool },
    Doctor { store: StoreUrl, require: Option<Level> },
    Errors { code: Option<Code> },
    Operate { store: StoreUrl, operation: GroupOperation },
    Serve(Box<serve::Settings>),
    Beat(beat::BeatTask),
    Switchboard { store: StoreUrl, task: switchboard::Task },
    Completions(Shell),
    Man { dir: Option<PathBuf> },
    Guard(Stage),
    Run(Box<RunSettings>),
    Poll(Box<PollSettings>),
    Bucket(bucket::BucketTask),
    Checkpoint(checkpoint::CheckpointTask),
}

impl Settings {
    pub(crate) fn new(args: Args) -> Result<Self, Failure> {
        let store = || StoreUrl::parse(&args.global.store);
        let operate = |operation| Ok::<_, Failure>(Action::Operate { operation, store: store()? });
        let board = |task| Ok::<_, Failure>(Action::Switchboard { task, store: store()? });
        let action = match &args.command {
            Command::Ls { group } => {
                let group = group.as_deref().map(group_name);
                operate(GroupOperation::List(group.transpose()?))?
            }
            Command::Top(args) => operate(args.operation()?)?,
            Command::Explain(args) => operate(args.operation()?)?,
            Command::Plan(args) => operate(args.operation()?)?,
            Command::Apply(args) => operate(args.operation()?)?,
            Command::Forget { duties, dry_run } => {
                let duties = duties.iter().map(|duty| name(duty, str::parse));
                let duties = duties.collect::<Result<_, _>>()?;
                operate(GroupOperation::Forget { duties, dry_run: *dry_run })?
            }
            Command::Store(command) => Action::Store { task: Task::new(command)?, store: store()? },
            Command::Migrate { print } => Action::Migrate { store: store()?, print: *print },
            Command::Checkpoint { signing, command } => {
                let signing = signing::Settings::new(signing)?;
                let store = &args.global.store;
                Action::Checkpoint(checkpoint::CheckpointTask::new(command, signing, store)?)
            }
            Command::Doctor { require } => {
                let require = require.as_deref().and_then(Level::parse);
                Action::Doctor { store: store()?, require }
            }
            Command::Drain(args) => operate(args.operation()?)?,
            Command::Evict(args) => operate(args.operation()?)?,
            Command::Pause(args) => operate(args.operation(true)?)?,
            Command::Resume(args) => operate(args.operation(false)?)?,
            Command::Pin(args) => operate(args.operation()?)?,
            Command::Cordon(args) => operate(args.operation()?)?,
            Command::Weight(args) => operate(args.operation()?)?,
            Command::Serve(args) => Action::Serve(Box::new(serve::Settings::new(args, store()?)?)),
            Command::Beat(args) => Action::Beat(beat::BeatTask::new(args)?),
            Command::Token(command) => board(switchboard::Task::Token(token::Task::new(command)?))?,
            Command::Fence(command) => board(switchboard::Task::Fence(fence::Task::new(command)?))?,
            Command::Channel(command) => board(switchboard::Task::Channel(command.clone()))?,
            Command::Connectors(command) => {
                board(switchboard::Task::Connectors(connectors::Task::new(command)?))?
            }
            Command::Bucket(bucket) => {
                Action::Bucket(bucket::BucketTask::new(bucket, &args.global)?)
            }
            Command::Completions { shell } => Action::Completions(*shell),
            Command::Man { dir } => Action::Man { dir: dir.as_deref().map(path).transpose()? },
            Command::Guard(args) => Action::Guard(args.stage()),
            Command::Poll(poll) => {
                let settings = store().map_err(Failure::from);
                let settings = settings.and_then(|store| poll.settings(store));
                Action::Poll(Box::new(settings.map_err(run::bad_usage)?))
            }
            Command::Run(run) => {
                let settings = store().map_err(Failure::from);
                let settings = settings.and_then(|store| run.settings(store));
                Action::Run(Box::new(settings.map_err(run::bad_usage)?))
            }
            Command::Errors { code } => {
                Action::Errors { code: code.as_deref().map(known).transpose()? }
            }
        };
        Ok(Self { json: args.global.json, action })
    }
}

fn known(text: &str) -> Result<Code, Failure> {
    let code = Code::ALL.iter().copied().find(|code| code.as_str().eq_ignore_ascii_case(text));
    code.ok_or_else(|| {
        let text = if may_be_secret(text) { NOT_SHOWN.to_owned() } else { format!("{text:?}") };
        Failure::Usage(format!("there is no error code {text}; `tenure errors` lists all"))
    })
}
