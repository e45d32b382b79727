//! Task that stores what the program writes into its state file.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use rustix::process::Pid;
use tenure_core::{BoxFuture, Clock as _, Code, Document, LocalInstant, LogLevel, StoreError};
use tenure_duty::{Guard, HoldLost, PutOutcome};
use tenure_store::BootClock;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::StateFile;
use super::processes::{CommandProcesses, CommandState, KilledProcesses};
use super::watch::{FileChange, FileChanges, FileWatch};
use crate::guard::ExitStatus;
use crate::observe::LogEvent;

/// Interval between looks at the processes while the file does not change.
const PROCESS_INTERVAL: Duration = Duration::from_secs(5);
/// Pause between two commits: at most five a second.
const COMMIT_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause after a failed commit.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(5);

/// A task that follows a state file while a command runs.
#[derive(Debug)]
pub(crate) struct StateTask {
    process: watch::Sender<Option<Pid>>,
    finish: oneshot::Sender<Option<ExitStatus>>,
    task: JoinHandle<()>,
}

impl StateTask {
    pub(super) fn start(file: StateFile, hold: Guard, guard: Pid) -> io::Result<Self> {
        let watch = file.watches.watch(&file.path)?;
        let (process, seen_process) = watch::channel(None);
        let (finish, finished) = oneshot::channel();
        let follower = Follower {
            commits: CommitQueue::new(hold.clone()),
            file,
            hold,
            watch,
            guard,
            process: seen_process,
            killed: KilledProcesses::new(),
            changed: None,
            may_be_torn: false,
            torn: None,
            logged_problem: String::new(),
        };
        let task = tokio::spawn(follower.run(finished));
        Ok(Self { process, finish, task })
    }

    /// Names the process of the command.
    pub(crate) fn started(&self, process: Option<Pid>) {
        self.process.send_replace(process);
    }

    /// Stores the last whole content, and waits until it is stored or the hold has ended. Nothing
    /// of the command runs any more; `status` is `None` if it is not known how it ended.
    pub(crate) async fn finish(self, status: Option<ExitStatus>) {
        let _ = self.finish.send(status);
        // It ends with the hold at the latest.
        let _ = self.task.await;
    }
}

type PendingCommit = BoxFuture<'static, Result<PutOutcome, StoreError>>;

/// Contents that wait to be stored: one commit at a time, the newest content next.
struct CommitQueue {
    hold: Guard,
    waiting: Option<Vec<u8>>,
    running: Option<(Vec<u8>, PendingCommit)>,
    /// Earliest start of the next commit.
    next_at: LocalInstant,
    /// Pause after the next failure.
    pause: Duration,
}

enum QueueEvent {
    /// The next commit may start.
    Ready,
    /// A commit has ended.
    Ended(Result<PutOutcome, StoreError>),
}

impl CommitQueue {
    fn new(hold: Guard) -> Self {
        let (waiting, running, next_at) = (None, None, BootClock.now());
        Self { hold, waiting, running, next_at, pause: COMMIT_PAUSE }
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_none() && self.running.is_none()
    }

    /// Waits until a commit has ended; if `looks`, also until the next one may start.
    /// Cancellation-safe.
    async fn next(&mut self, looks: bool) -> QueueEvent {
        loop {
            if let Some((_, commit)) = &mut self.running {
                return QueueEvent::Ended(commit.await);
            }
            if self.waiting.is_none() && !looks {
                return std::future::pending().await;
            }
            sleep(self.next_at.since(BootClock.now())).await;
            if looks {
                return QueueEvent::Ready;
            }
            self.start();
        }
    }

    /// Starts the next commit, if there is one.
    fn start(&mut self) {
        self.next_at = BootClock.now().plus(COMMIT_PAUSE);
        let Some(content) = self.waiting.take() else { return };
        let (hold, document) = (self.hold.clone(), Document::new(content.clone()));
        let commit = async move {
            // After a pause of this process, the store has to confirm the hold first.
            if hold.check() == Err(HoldLost::Unconfirmed) {
                hold.confirmed().await?;
            }
            hold.put(document?, None).await
        };
        self.running = Some((content, Box::pin(commit)));
    }

    /// Takes back the content whose commit has ended; returns it if it is stored.
    fn ended(&mut self, result: Result<PutOutcome, StoreError>) -> Option<Vec<u8>> {
        let (content, _) = self.running.take()?;
        match result {
            Ok(_) => {
                self.pause = COMMIT_PAUSE;
                return Some(content);
            }
            // Nothing can be stored any more.
            Err(error) if error.code() == Code::Fenced && self.hold.is_over() => {
                self.waiting = None;
            }
            Err(_) => {
                // The observer has logged it. A newer content takes precedence.
                self.waiting.get_or_insert(content);
                self.next_at = BootClock.now().plus(self.pause);
                self.pause = (self.pause * 2).min(MAX_RETRY_PAUSE);
            }
        }
        None
    }
}

struct Follower {
    file: StateFile,
    hold: Guard,
    watch: FileWatch,
    /// Parent of the processes of the command.
    guard: Pid,
    /// The first of them.
    process: watch::Receiver<Option<Pid>>,
    /// Processes that had been killed at the last look: they have closed the file before it.
    killed: KilledProcesses,
    commits: CommitQueue,
    /// The last change that was not looked at.
    changed: Option<FileChange>,
    /// Whether the file was written in place by a process that may have been killed.
    may_be_torn: bool,
    /// Content that a process was writing when it was killed.
    torn: Option<Vec<u8>>,
    /// The problem that was logged last.
    logged_problem: String,
}

impl Follower {
    async fn run(mut self, mut finished: oneshot::Receiver<Option<ExitStatus>>) {
        loop {
            tokio::select! {
                biased;
                finished = &mut finished => return self.end(finished.unwrap_or(None)).await,
                changes = self.watch.changes() => self.note(changes),
                event = self.commits.next(self.changed.is_some()) => match event {
                    QueueEvent::Ready => {
                        self.look();
                        self.commits.start();
                    }
                    QueueEvent::Ended(result) => self.committed(result),
                },
                () = sleep(PROCESS_INTERVAL), if self.changed.is_none() => self.note_killed(),
            }
        }
    }

    /// Notes which processes were killed before the next change: they have closed the file.
    fn note_killed(&mut self) {
        let processes = CommandProcesses::read(self.guard, *self.process.borrow());
        self.note(self.watch.pending());
        if self.changed.is_none() {
            self.killed = processes.killed();
        }
    }

    fn committed(&mut self, result: Result<PutOutcome, StoreError>) {
        if result.as_ref().is_err_and(StoreError::is_unknown) {
            // The store may have this content, or the one before.
            self.file.set_stored(None);
        }
        if let Some(content) = self.commits.ended(result) {
            self.logged_problem.clear();
            self.file.set_stored(Some(content));
        }
    }

    fn note(&mut self, changes: FileChanges) {
        if changes.folder_gone {
            self.log(LogLevel::Warn, "its folder is gone: no change is noticed any more");
        }
        self.changed = changes.last.or(self.changed);
    }

    /// Reads the file, and makes its content the next one to store if it is whole.
    fn look(&mut self) {
        let Some(change) = self.changed.take() else { return };
        let content = match self.file.read() {
            Ok(Some(content)) => content,
            // It was removed or is being replaced: another change follows.
            Ok(None) => return,
            Err(error) => return self.log_problem(&error),
        };
        if content.bytes.is_empty() {
            // A process may have just opened it to write it in place.
            return;
        }
        let processes = CommandProcesses::read(self.guard, *self.process.borrow());
        // Its writer closes it later, which is another change.
        if processes.are_writing(content.file.dev(), content.file.ino()) {
            return;
        }
        let pending = self.watch.pending();
        self.note(pending);
        if pending.closed || (self.changed.is_some() && change == FileChange::Closed) {
            // It may have been changed in place before it was read.
            return;
        }
        let state = processes.state(&self.killed);
        self.killed = processes.killed();
        match (change, state) {
            // Nobody has closed it since, so nobody has written it, whoever was killed; a process
            // that is ending may still close it.
            (FileChange::Replaced, _) if !processes.are_ending() => self.take(content.bytes, false),
            (FileChange::Replaced, _) => self.changed = Some(change),
            (FileChange::Closed, CommandState::Alive) => self.take(content.bytes, true),
            // Looked at again: the command has just started, a process of it is ending, or the
            // exit status decides, when it is known.
            (FileChange::Closed, CommandState::Ending) => self.changed = Some(change),
            (FileChange::Closed, CommandState::Killed) => {
                (self.may_be_torn, self.torn) = (true, Some(content.bytes));
            }
        }
    }

    /// Makes a whole content the next one to store.
    fn take(&mut self, content: Vec<u8>, in_place: bool) {
        if in_place {
            if self.torn.as_ref() == Some(&content) {
                return;
            }
            if let Err(error) = self.file.check_form(&content) {
                return self.log_problem(&error);
            }
        }
        (self.may_be_torn, self.torn) = (false, None);
        let known = match &self.commits.running {
            Some((running, _)) => *running == content,
            None => self.file.is_stored(&content),
        };
        self.commits.waiting = (!known).then_some(content);
    }

    /// Stores the last whole content while the hold is valid.
    async fn end(mut self, status: Option<ExitStatus>) {
        let exited = matches!(status, Some(ExitStatus::Code(_)));
        self.note(self.watch.pending());
        let replaced = self.changed == Some(FileChange::Replaced);
        self.may_be_torn |= self.changed == Some(FileChange::Closed);
        // After an exit of its own, also a content that no event has reported is whole.
        if exited || replaced {
            match self.file.read() {
                Ok(Some(content)) => self.take(content.bytes, !replaced),
                Ok(None) => {}
                Err(error) => self.log_problem(&error),
            }
        }
        if self.may_be_torn && (self.torn.is_some() || !exited) {
            let reason = "not stored: a process was killed that may have been writing it in place";
            self.log(LogLevel::Warn, reason);
        }
        let hold = self.hold.clone();
        // A store that renews the hold and refuses the state gets as much time as one that is away.
        let most = hold.deadline().since(BootClock.now());
        let rest = async {
            while !self.commits.is_empty() {
                if let QueueEvent::Ended(result) = self.commits.next(false).await {
                    self.committed(result);
                }
            }
        };
        tokio::select! {
            biased;
            () = rest => {}
            () = hold.lost() => {}
            () = sleep(most) => {}
        }
        if !self.commits.is_empty() {
            let reason = "the last state is not stored: the file has it until the next start, and \
                          then the file before";
            self.log(LogLevel::Error, reason);
        }
    }

    /// Logs a problem once, until it changes or a commit succeeds.
    fn log_problem(&mut self, error: &StoreError) {
        let problem = error.problem().to_string();
        if self.logged_problem != problem {
            self.log(LogLevel::Warn, &format!("not stored: {problem}"));
            self.logged_problem = problem;
        }
    }

    fn log(&self, level: LogLevel, what: &str) {
        let duty = Some((self.hold.duty().clone(), self.hold.epoch()));
        let reason = format!("{}: {what}", self.file.path.display());
        self.file.recorder.log(LogEvent { level, event: "state_file", duty, reason });
    }
}
