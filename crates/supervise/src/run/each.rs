//! One command per held duty: shards, targets, or the partitions of this process.

use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tenure_core::engine::Layout;
use tenure_core::{Code, DutyId, GroupName, LogLevel, Targets};
use tenure_duty::fixed::Partitions;
use tenure_duty::{
    Duties, DutyError, Guard, LeaveHandle, Membership, MembershipEvent, WorkOutcome, process,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::api::{LocalApi, ShardNumber};
use crate::command::CommandTiming;
use crate::error::{SuperviseError, SystemContext as _};
use crate::guard::{EndCause, ExitStatus};
use crate::member::{self, SupervisorSettings};
use crate::observe::{LogEvent, Observation, Recorder};
use crate::output::{OutputForm, with_output};
use crate::pool::{CommandEnd, GuardPool, PooledRun, PooledStart};
use crate::process_tree::reap_all;
use crate::scratch::Scratch;
use crate::signals::{Signals, is_stop};
use crate::state::{StateFiles, fill_in};

use super::signal_exit_code;

/// Events of memberships that wait to be handled.
const MAX_QUEUED_EVENTS: usize = 16;

/// Duties that get a command each.
#[derive(Clone)]
pub enum EachDuties {
    /// The duties `0` to `n - 1`, shared by the members of the group.
    Shards(u32),
    /// Duties from a list, shared by the members of the group.
    Targets {
        /// Source of the list.
        source: Arc<dyn Targets>,
        /// Interval between two reads.
        every: Duration,
    },
    /// The partitions of this process. It claims each, so that a second process with the same
    /// number waits.
    Partitions(Partitions),
}

impl fmt::Debug for EachDuties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shards(count) => write!(f, "Shards({count})"),
            Self::Targets { .. } => f.write_str("Targets"),
            Self::Partitions(partitions) => write!(f, "{partitions:?}"),
        }
    }
}

/// A command for each duty that this instance holds.
#[derive(Clone, Debug)]
pub struct RunEachSettings {
    /// Group of the duties.
    pub group: GroupName,
    /// The duties.
    pub duties: EachDuties,
    /// Membership in the group.
    pub member: SupervisorSettings,
    /// The most duties that this instance holds.
    pub room: Option<usize>,
    /// The program and its arguments; `{}` in them becomes the id of the duty.
    pub command: Vec<OsString>,
    /// Form of the commands' output.
    pub output: OutputForm,
}

/// Runs a command for each duty while this process holds it, until a signal asks this process to
/// end. A command that ends is started again after a pause, here or on another member. Returns the
/// exit code: 128 and the number of the signal.
pub async fn run_each(settings: RunEachSettings) -> Result<u8, SuperviseError> {
    let observation = settings.member.observe(&settings.group)?;
    let ran = CommandFleet::run(settings, &observation).await;
    observation.finish();
    ran
}

/// State shared by all commands.
#[derive(Debug)]
struct CommandFleet {
    settings: RunEachSettings,
    pool: GuardPool,
    api: LocalApi,
    states: Option<StateFiles>,
    recorder: Recorder,
}

impl CommandFleet {
    async fn run(
        settings: RunEachSettings,
        observation: &Observation,
    ) -> Result<u8, SuperviseError> {
        let mut signals = member::listen()?;
        let recorder = observation.recorder();
        let scratch = Scratch::create().context("cannot create a private folder")?;
        let api = LocalApi::start(settings.member.api_port, scratch.path(), recorder.clone())?;
        let states = StateFiles::new(settings.member.state.as_ref(), &recorder);
        let states = states.context("cannot watch files")?;
        let pool = GuardPool::start(&settings.member, settings.output, scratch).await?;
        let memberships = match join_all(&settings, observation, &mut signals).await? {
            Ok(memberships) => memberships,
            Err(signal) => return Ok(signal_exit_code(signal)),
        };
        let fleet = Arc::new(Self { settings, pool, api, states, recorder });
        let leavers = memberships.iter().map(Membership::leaver).collect();
        let events = merge(memberships);
        attend_all(&fleet, signals, leavers, events).await
    }

    /// Runs the command of a duty until it ends or the hold does.
    async fn attend(self: Arc<Self>, hold: Guard) {
        let how = self.run_command(&hold).await;
        hold.finished(how);
    }

    async fn run_command(&self, hold: &Guard) -> WorkOutcome {
        let state = self.states.as_ref().map(|states| states.of(&hold.duty().id));
        if let Some(state) = &state
            && let Err(error) = state.restore(hold).await
        {
            if error.code() == Code::Fenced {
                return WorkOutcome::Asked;
            }
            self.failed(hold, error.problem().to_string());
            return WorkOutcome::Failed;
        }
        let start = PooledStart {
            hold,
            shard: self.shard(&hold.duty().id),
            argv: self.argv(&hold.duty().id),
            variables: &self.variables(&hold.duty().id),
            timing: CommandTiming::new(&self.settings.member),
            api: &self.api,
            state: state.as_ref(),
            log: &|event, reason| self.log(hold, LogLevel::Warn, event, reason),
        };
        let ran = self.pool.run(start).await;
        self.ended(hold, ran)
    }

    fn ended(&self, hold: &Guard, ran: PooledRun) -> WorkOutcome {
        let failed = |reason: String| {
            self.failed(hold, reason);
            WorkOutcome::Failed
        };
        let PooledRun { end, output, released } = ran;
        match end {
            _ if released || hold.draining() => WorkOutcome::Asked,
            CommandEnd::Ended(status, EndCause::Exited) => {
                let reason = with_output(&status.to_string(), &output);
                let good = status == ExitStatus::Code(0);
                let level = if good { LogLevel::Info } else { LogLevel::Warn };
                let reason = format!("{reason}; it is started again after a pause");
                self.log(hold, level, "command_ended", reason);
                if good { WorkOutcome::Done } else { WorkOutcome::Failed }
            }
            CommandEnd::Ended(_, EndCause::Deadline) => {
                let reason = "killed: the hold was not renewed in time".to_owned();
                self.log(hold, LogLevel::Warn, "command_ended", reason);
                WorkOutcome::Asked
            }
            CommandEnd::Ended(_, EndCause::Requested) => WorkOutcome::Asked,
            CommandEnd::CannotStart(error) => failed(self.cannot_start(&error)),
            CommandEnd::NoGuard(error) => failed(error.problem().to_string()),
            CommandEnd::GuardLost(what) => failed(what),
            CommandEnd::Remains => failed("a process of the command is still running".to_owned()),
        }
    }

    fn shard(&self, duty: &DutyId) -> ShardNumber {
        let number = Layout::shard_of(duty)?;
        match &self.settings.duties {
            EachDuties::Shards(count) => Some((number, Some(*count))),
            EachDuties::Partitions(partitions) => Some((number, partitions.total())),
            EachDuties::Targets { .. } => None,
        }
    }

    /// Returns the command for a duty. No shell is involved.
    fn argv(&self, duty: &DutyId) -> Vec<OsString> {
        self.settings.command.iter().map(|word| fill_in(word, duty.as_str())).collect()
    }

    fn variables(&self, duty: &DutyId) -> Vec<(String, OsString)> {
        let names: &[&str] = match &self.settings.duties {
            EachDuties::Shards(_) => &[],
            EachDuties::Targets { .. } => &["TENURE_TARGET"],
            // A command has one partition, also if this process has several.
            EachDuties::Partitions(partitions) if partitions.total().is_none() => {
                &[Partitions::LIST_VARIABLE]
            }
            EachDuties::Partitions(_) => &[Partitions::LIST_VARIABLE, Partitions::ID_VARIABLE],
        };
        names.iter().map(|name| ((*name).to_owned(), duty.as_str().into())).collect()
    }

    fn cannot_start(&self, error: &std::io::Error) -> String {
        let program = self.settings.command.first().map(|word| word.to_string_lossy());
        let (program, code) = (program.unwrap_or_default(), Code::CannotStart);
        format!("{code}: {program} cannot be started: {error}; see `tenure errors {code}`")
    }

    fn failed(&self, hold: &Guard, reason: String) {
        self.log(hold, LogLevel::Warn, "command_failed", reason);
    }

    fn log(&self, hold: &Guard, level: LogLevel, event: &'static str, reason: String) {
        let duty = Some((hold.duty().clone(), hold.epoch()));
        self.recorder.log(LogEvent { level, event, duty, reason });
    }
}

/// Joins the group: once, or once per partition.
async fn join_all(
    settings: &RunEachSettings,
    observation: &Observation,
    signals: &mut Signals,
) -> Result<Result<Vec<Membership>, Signal>, SuperviseError> {
    let duties = match &settings.duties {
        EachDuties::Shards(count) => vec![Duties::Shards(*count)],
        EachDuties::Targets { source, every } => {
            vec![Duties::Targets { source: Arc::clone(source), every: *every }]
        }
        EachDuties::Partitions(partitions) => {
            let standby = |id: &u32| Layout::shard(*id).map(Duties::Standby);
            partitions.ids().iter().map(standby).collect::<Result<_, _>>()?
        }
    };
    let mut memberships = Vec::new();
    for (n, duties) in duties.into_iter().enumerate() {
        let mut join = settings.member.join(settings.group.clone(), duties, observation, true);
        if let Some(room) = settings.room {
            join = join.room(room);
        }
        if n > 0 {
            // A session has one instance, and each partition a session of its own.
            join = join.instance(&process::another_instance());
        }
        match member::start(join, signals, is_stop).await? {
            Ok(membership) => memberships.push(membership),
            Err(signal) => {
                for membership in memberships {
                    // Otherwise others wait for its TTL.
                    let _ = membership.leave().await;
                }
                return Ok(Err(signal));
            }
        }
    }
    Ok(Ok(memberships))
}

/// Returns the events of all memberships; the channel closes after the last one has ended.
fn merge(memberships: Vec<Membership>) -> mpsc::Receiver<MembershipEvent> {
    let (sender, events) = mpsc::channel(MAX_QUEUED_EVENTS);
    for mut membership in memberships {
        let sender = sender.clone();
        tokio::spawn(async move {
            while let Some(event) = membership.next().await {
                // The receiver reads until every membership has ended.
                let _ = sender.send(event).await;
            }
        });
    }
    events
}

/// Starts a command for each assigned duty, until all memberships have ended.
async fn attend_all(
    fleet: &Arc<CommandFleet>,
    mut signals: Signals,
    leavers: Vec<LeaveHandle>,
    mut events: mpsc::Receiver<MembershipEvent>,
) -> Result<u8, SuperviseError> {
    let mut tasks = JoinSet::new();
    let (mut stop, mut end) = (None, Ok(()));
    let leave = |fleet: &CommandFleet| {
        fleet.pool.leave();
        fleet.recorder.set_leaving();
        leavers.iter().for_each(LeaveHandle::leave);
    };
    loop {
        tokio::select! {
            biased;
            signal = signals.next() => {
                if signal == Signal::CHILD {
                    reap_all();
                } else if leaves(signal) && stop.is_none() {
                    stop = Some(signal);
                    leave(fleet);
                }
            }
            event = events.recv() => match event {
                Some(MembershipEvent::Assigned(hold)) => {
                    tasks.spawn(Arc::clone(fleet).attend(hold));
                }
                // One that cannot go on ends all: a process that works on a part hides the rest.
                Some(MembershipEvent::Ended(Err(problem))) if end.is_ok() => {
                    end = Err(DutyError::Refused(problem));
                    leave(fleet);
                }
                Some(_) => {}
                None => break,
            },
            Some(_) = tasks.join_next() => {}
        }
    }
    // Every hold has ended by now, so every command ends.
    while tasks.join_next().await.is_some() {}
    end?;
    Ok(stop.map_or(0, signal_exit_code))
}

/// Whether a signal asks this process to end.
pub(crate) fn leaves(signal: Signal) -> bool {
    is_stop(signal) && ![Signal::USR1, Signal::USR2].contains(&signal)
}
