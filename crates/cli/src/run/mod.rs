//! `tenure run` and `tenure poll`: settings from arguments, exit codes from errors.

pub(crate) mod args;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::engine::MemberSettings;
use tenure_core::{Code, GroupName, Label, StoreError, Ttl};
use tenure_duty::fixed::Partitions;
use tenure_schedule::RunSchedule;
use tenure_store::StoreUrl;
use tenure_supervise::member::{MIN_TTL, StoreSettings, SupervisorSettings};
use tenure_supervise::observe::LogLevel;
use tenure_supervise::poll::{MissedPolls, PollSettings, poll};
use tenure_supervise::run::{
    AssignedWork, EachDuties, RunEachSettings, RunSettings, run as supervise, run_each,
};
use tenure_supervise::schedule::ScheduledWork;
use tenure_supervise::state::{StateSettings, is_same_file};
use tenure_supervise::{OutputForm, SuperviseError};
use tenure_targets::TargetsUrl;

use crate::args::{Global, group_name, name, path};
use crate::cron::args::AttemptArgs;
use crate::env;
use crate::failure::Failure;
use crate::limits::{check_count, check_time};
use crate::{signing, wait_for};

/// Exit code for failures of Tenure itself; `env` and `timeout` use the same.
const TENURE_FAILED: u8 = 125;
const CANNOT_START: u8 = 126;
const NOT_FOUND: u8 = 127;
const HELD: u8 = 1;
const BAD_USAGE: u8 = 2;

const MIN_INTERVAL: Duration = Duration::from_millis(1);
const MAX_INTERVAL: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Limit of `--jobs`: each poll needs a process and a guard.
const MAX_JOBS: usize = 10_000;
/// Limit of a default name: a label with room for a number.
const MAX_HOST_NAME_BYTES: usize = Label::MAX_NAME_BYTES - 8;
const MAX_SHARDS: usize = MemberSettings::DEFAULT_MAX_GROUP_DUTIES;

impl args::MemberArgs {
    pub(crate) fn settings(&self, store: StoreUrl) -> Result<SupervisorSettings, Failure> {
        check_time("--ttl", self.ttl, MIN_TTL, Ttl::MAX_TTL)?;
        let label = |text: &Option<String>| {
            text.as_deref().map(|text| name(text, Label::unescape)).transpose()
        };
        let signing = signing::SigningSettings::new(&self.signing)?;
        let store = StoreSettings {
            url: store,
            protection: Arc::new(move || signing.protection()),
            require: self.require,
        };
        let settings = SupervisorSettings {
            grace: self.grace,
            drain: self.drain,
            isolate: self.isolate,
            hidden_env: env::SECRETS.map(str::to_owned).into(),
            zone: label(&self.zone)?,
            name: label(&self.name)?.or_else(host_name),
            numbered_name: self.name.is_none(),
            revision: label(&self.revision)?,
            weight: self.weight,
            observe: (&self.watch).into(),
            api_port: self.api_port,
            ..SupervisorSettings::new(store, Ttl::new(self.ttl)?)
        };
        settings.check()?;
        Ok(settings)
    }
}

/// Returns the name of the pod or host: the first one that can be the name of a member.
fn host_name() -> Option<Label> {
    let variables = env::NAME_VARIABLES.into_iter().filter_map(|name| std::env::var(name).ok());
    let kernel = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let labels = variables.chain([kernel]).filter_map(|name| Label::new(name).ok());
    labels.into_iter().find(|label| label.as_str().len() <= MAX_HOST_NAME_BYTES)
}

/// Refuses a state file that the store itself writes.
fn check_state(state: &StateSettings, store: &StoreUrl) -> Result<(), Failure> {
    let (path, Ok(stored)) = (&state.path, store.local_path()) else { return Ok(()) };
    let names = path.file_name().zip(stored.file_name());
    let is_beside = names.is_some_and(|(name, own)| {
        let (name, own) = (name.as_encoded_bytes(), own.as_encoded_bytes());
        let end = name.strip_prefix(own);
        let is_known = |end: &[u8]| end.starts_with(b".partition-") || end.starts_with(b"-");
        end.is_some_and(is_known)
            && is_same_file(&stored, &path.with_file_name(OsStr::from_bytes(own)))
    });
    let (what, instead) = match store.cursor_path() {
        Some(cursor) if is_same_file(&cursor, path) => (
            "is the cursor of the store, which writes it",
            "use another store, such as sqlite:tenure.db, or leave --state out and read the file",
        ),
        _ if is_beside || is_same_file(&stored, path) => {
            ("is a file of the store, which writes it", "name another file")
        }
        _ => return Ok(()),
    };
    Err(Failure::Usage(format!("--state {} {what}; {instead}", path.display())))
}

impl args::StateArgs {
    /// Reads the state file of a command.
    fn settings(&self, store: &StoreUrl) -> Result<Option<StateSettings>, Failure> {
        let Some(file) = &self.state else { return Ok(None) };
        let state = StateSettings { path: path(file)?, import: self.state_import };
        check_state(&state, store)?;
        Ok(Some(state))
    }

    /// Reads the state file of several duties: each needs one of its own. Partitions have a
    /// published name for theirs.
    fn settings_per_duty(
        &self,
        store: &StoreUrl,
        partitions: bool,
    ) -> Result<Option<StateSettings>, Failure> {
        let Some(mut state) = self.settings(store)? else { return Ok(None) };
        match state.is_per_duty() {
            true => {}
            false if partitions => state.path = Partitions::cursor_path(&state.path, "{}"),
            false => {
                return Err(Failure::Usage(format!(
                    "--state {} (or {}) would be shared by several duties; put {{}} into its \
                     name, as in cursor-{{}}.json",
                    state.path.display(),
                    env::CURSOR_PATH
                )));
            }
        }
        Ok(Some(state))
    }
}

impl args::OutputArgs {
    fn form(&self) -> OutputForm {
        match self.output {
            args::OutputArg::Label => OutputForm::Labelled,
            args::OutputArg::Plain => OutputForm::Inherited,
        }
    }
}

/// Returns the settings of a command for one duty.
pub(crate) fn settings(
    duty: &str,
    member: &args::MemberArgs,
    state: &args::StateArgs,
    command: &[OsString],
    global: &Global,
) -> Result<RunSettings, Failure> {
    let store = global.url()?;
    let state = state.settings(&store)?;
    let member = SupervisorSettings { state, ..member.settings(store)? };
    Ok(RunSettings::new(name(duty, str::parse)?, member, command.to_vec()))
}

impl args::RunCommandArgs {
    /// Settings for one duty.
    fn settings(&self, duty: &str, global: &Global) -> Result<RunSettings, Failure> {
        let settings = settings(duty, &self.member, &self.state, &self.command, global)?;
        Ok(RunSettings { no_wait: self.no_wait, ..settings })
    }

    /// Work that runs the command once per period, with `--once-per`.
    fn once_per(&self, global: &Global) -> Result<Option<ScheduledWork>, Failure> {
        let Some(period) = self.once_per else {
            let typed = AttemptArgs::OPTIONS.iter().find(|option| global.is_typed(option));
            return match typed {
                None => Ok(None),
                Some(option) => Err(Failure::Usage(format!(
                    "--{option} needs --once-per TIME; `tenure cron` has it, too"
                ))),
            };
        };
        let schedule = RunSchedule::period(period, &self.attempts.tz)?;
        Ok(Some(ScheduledWork { schedule, policy: self.attempts.policy()? }))
    }

    /// Settings for the duties of a group.
    fn settings_for_each(&self, group: &str, global: &Global) -> Result<RunEachSettings, Failure> {
        let store = global.url()?;
        let state = self.state.settings_per_duty(&store, self.partitions)?;
        check_time("--list-every", self.list_every, MIN_INTERVAL, MAX_INTERVAL)?;
        if let Some(room) = self.room {
            check_count("--room", room, 1, MAX_JOBS)?;
        }
        let duties = match (self.shards, &self.targets) {
            (Some(shards), _) => {
                check_count("--shards", shards as usize, 1, MAX_SHARDS)?;
                EachDuties::Shards(shards)
            }
            (None, Some(url)) => {
                let source = TargetsUrl::parse(url).map_err(StoreError::from)?.open();
                EachDuties::Targets { source, every: self.list_every }
            }
            (None, None) => {
                EachDuties::Partitions(Partitions::from_env().map_err(StoreError::from)?)
            }
        };
        Ok(RunEachSettings {
            group: group_name(group)?,
            duties,
            member: SupervisorSettings { state, ..self.member.settings(store)? },
            room: self.room,
            command: self.command.clone(),
            output: self.output.form(),
        })
    }
}

impl args::PollArgs {
    fn settings(&self, global: &Global) -> Result<PollSettings, Failure> {
        let store = global.url()?;
        let state = self.state.settings_per_duty(&store, false)?;
        let member = SupervisorSettings { state, ..self.member.settings(store)? };
        check_time("--every", self.every, MIN_INTERVAL, MAX_INTERVAL)?;
        check_time("--list-every", self.list_every, MIN_INTERVAL, MAX_INTERVAL)?;
        check_time("--timeout", self.timeout, MIN_INTERVAL, MAX_INTERVAL)?;
        check_time("--retry-delay", self.retry_delay, MIN_INTERVAL, MAX_INTERVAL)?;
        check_count("--jobs", self.jobs, 1, MAX_JOBS)?;
        Ok(PollSettings {
            targets: TargetsUrl::parse(&self.targets).map_err(StoreError::from)?.open(),
            group: name(&self.group, GroupName::unescape)?,
            member,
            every: self.every,
            timeout: self.timeout,
            retries: self.retries,
            retry_delay: self.retry_delay,
            missed: match self.missed {
                args::MissedArg::Run => MissedPolls::Run,
                args::MissedArg::Skip => MissedPolls::Skip,
            },
            list_every: self.list_every,
            jobs: self.jobs,
            command: self.command.clone(),
            output: self.output.form(),
        })
    }
}

/// Runs `tenure run`.
pub(crate) fn run_command(
    args: &args::RunCommandArgs,
    global: &Global,
) -> Result<ExitCode, Failure> {
    match (&args.duty, &args.group) {
        (None, Some(group)) => {
            let settings = args.settings_for_each(group, global).map_err(bad_usage)?;
            let ran = wait_for(async { Ok(run_each(settings).await?) });
            ran.map(ExitCode::from).map_err(around)
        }
        (duty, _) => {
            let duty = duty.as_deref().unwrap_or_default();
            let settings = args.settings(duty, global).map_err(bad_usage)?;
            match args.once_per(global).map_err(bad_usage)? {
                None => wait_for(run(settings, None)),
                Some(work) => wait_for(run_once(settings, work, global)),
            }
        }
    }
}

/// Runs the command once per period. Nothing is printed and the exit code is 0 if there is nothing
/// to do: the period is settled, or with `--no-wait` another instance is at it.
async fn run_once(
    mut settings: RunSettings,
    work: ScheduledWork,
    global: &Global,
) -> Result<ExitCode, Failure> {
    let observe = &mut settings.member.observe;
    if observe.level == LogLevel::Info && !global.is_typed("log-level") {
        observe.level = LogLevel::Warn;
    }
    match supervise(settings, Some(Box::new(work))).await {
        Ok(code) => Ok(ExitCode::from(code)),
        Err(SuperviseError::Held(_)) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(around(error.into())),
    }
}

/// Runs `tenure poll`.
pub(crate) fn poll_targets(args: &args::PollArgs, global: &Global) -> Result<ExitCode, Failure> {
    let settings = args.settings(global).map_err(bad_usage)?;
    wait_for(async { Ok(poll(settings).await?) })?;
    Ok(ExitCode::SUCCESS)
}

/// Waits for the duty, runs the command, and returns its exit code.
pub(crate) async fn run(
    settings: RunSettings,
    work: Option<Box<dyn AssignedWork>>,
) -> Result<ExitCode, Failure> {
    // Without a command there are no exit codes to distinguish from Tenure's.
    let has_command = !settings.command.is_empty();
    let ran = supervise(settings, work).await.map_err(Failure::from);
    ran.map(ExitCode::from).map_err(|failure| if has_command { around(failure) } else { failure })
}

/// Sets exit code 2 for any bad usage: 1 means that another instance holds the duty.
pub(crate) fn bad_usage(failure: Failure) -> Failure {
    failure.exiting(BAD_USAGE)
}

/// Sets an exit code for failures of Tenure that differs from the command's.
pub(crate) fn around(failure: Failure) -> Failure {
    let is_held = matches!(&failure, Failure::Error(report)
        if report.error.code() == Code::Held && report.kept.is_none());
    failure.exiting(if is_held { HELD } else { TENURE_FAILED })
}

impl From<SuperviseError> for Failure {
    fn from(error: SuperviseError) -> Self {
        match error {
            SuperviseError::Setting { setting, problem } => {
                Self::Usage(format!("--{setting} {problem}"))
            }
            SuperviseError::Store(error) => error.into(),
            SuperviseError::Duty(error) => StoreError::from(error).into(),
            SuperviseError::Kept { error, kept } => Self::from(error).keeping(kept),
            SuperviseError::Held(error) => {
                Self::from(error).hinting("start without --no-wait to wait for it")
            }
            SuperviseError::CannotStart { error, not_found } => Self::from(error)
                .keeping("the duty was released")
                .exiting(if not_found { NOT_FOUND } else { CANNOT_START }),
            error @ SuperviseError::System { .. } => anyhow::Error::from(error).into(),
        }
    }
}
