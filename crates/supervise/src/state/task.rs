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
use super::watch::{FileChange, FileWatch};
use crate::guard::ExitStatus;
use crate::observe::LogEvent;
use crate::process_tree::{FamilyState, family_state, is_being_written};

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
    pub(super) fn start(file: StateFile, hold: Guard) -> io::Result<Self> {
        let watch = FileWatch::new(&file.path)?;
        let (process, seen_process) = watch::channel(None);
        let (finish, finished) = oneshot::channel();
        let follower = Follower {
            commits: CommitQueue::new(hold.clone()),
            file,
            hold,
            watch,
            process: seen_process,
            changed: None,
            doubtful: false,
            spoiled: None,
            complaint: String::new(),
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
            // The hold has ended, and nothing can be stored any more.
            Err(error) if error.code() == Code::Fenced => self.waiting = None,
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
    process: watch::Receiver<Option<Pid>>,
    commits: CommitQueue,
    /// The last change that was not looked at.
    changed: Option<FileChange>,
    /// Whether the file was written in place by a process that may have been killed.
    doubtful: bool,
    /// Content that a process was writing when it was killed.
    spoiled: Option<Vec<u8>>,
    /// The problem that was logged last.
    complaint: String,
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
            }
        }
    }

    fn committed(&mut self, result: Result<PutOutcome, StoreError>) {
        if let Some(content) = self.commits.ended(result) {
            self.complaint.clear();
            self.file.set_stored(content);
        }
    }

    fn note(&mut self, changes: Vec<FileChange>) {
        for change in changes {
            match change {
                FileChange::FolderGone => {
                    self.log(LogLevel::Warn, "its folder is gone: no change is noticed any more");
                }
                change => self.changed = Some(change),
            }
        }
    }

    /// Reads the file, and makes its content the next one to store if it is whole.
    fn look(&mut self) {
        let Some(change) = self.changed.take() else { return };
        let content = match self.file.read() {
            Ok(Some(content)) => content,
            // It was removed or is being replaced: another change follows.
            Ok(None) => return,
            Err(error) => return self.complain(&error),
        };
        let family = family_state(*self.process.borrow());
        // Its writer closes it later, which is another change.
        if is_being_written(content.file.dev(), content.file.ino()) {
            return;
        }
        self.note(self.watch.pending());
        match (change, family) {
            // It may have been changed after it was renamed and before it was read.
            _ if self.changed.is_some() => {}
            (FileChange::Replaced, FamilyState::Alive) => self.take(content.bytes, false),
            (_, FamilyState::Alive) => self.take(content.bytes, true),
            // Looked at again: the command has just started, a process of it is ending, or the
            // exit status decides, when it is known.
            (FileChange::Replaced, _) | (_, FamilyState::Ending) => self.changed = Some(change),
            (_, FamilyState::Killed) => {
                (self.doubtful, self.spoiled) = (true, Some(content.bytes));
            }
        }
    }

    /// Makes a whole content the next one to store.
    fn take(&mut self, content: Vec<u8>, in_place: bool) {
        if in_place {
            if self.spoiled.as_ref() == Some(&content) {
                return;
            }
            if let Err(error) = self.file.check_form(&content) {
                return self.complain(&error);
            }
        }
        (self.doubtful, self.spoiled) = (false, None);
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
        self.doubtful |= self.changed == Some(FileChange::Closed);
        // After an exit of its own, also a content that no event has reported is whole.
        if exited || replaced {
            match self.file.read() {
                Ok(Some(content)) => self.take(content.bytes, !replaced),
                Ok(None) => {}
                Err(error) => self.complain(&error),
            }
        }
        if self.doubtful && (self.spoiled.is_some() || !exited) {
            let reason = "not stored: a process was killed that may have been writing it in place";
            self.log(LogLevel::Warn, reason);
        }
        let hold = self.hold.clone();
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
        }
        if !self.commits.is_empty() {
            let reason = "the last state is not stored, because the hold has ended: the file has \
                          it until the next start, and then the file before";
            self.log(LogLevel::Error, reason);
        }
    }

    /// Logs a problem once, until it changes or a commit succeeds.
    fn complain(&mut self, error: &StoreError) {
        let problem = error.problem().to_string();
        if self.complaint != problem {
            self.log(LogLevel::Warn, &format!("not stored: {problem}"));
            self.complaint = problem;
        }
    }

    fn log(&self, level: LogLevel, what: &str) {
        let duty = Some((self.hold.duty().clone(), self.hold.epoch()));
        let reason = format!("{}: {what}", self.file.path.display());
        self.file.recorder.log(LogEvent { level, event: "state_file", duty, reason });
    }
}
