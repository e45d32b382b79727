//! Group commit: submissions of many connections share one transaction.
//!
//! A commit costs a flush to disk, whatever its size. Submissions that arrive during a commit
//! go into the next one: a single request does not wait, and many requests share the cost of a
//! flush. A submission is answered after its group is durable.
//!
//! Why: docs/decisions/0029-one-inbox-commit-at-a-time.md

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{Clock, Code};
use tenure_store::BootClock;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::budget::MemoryShare;
use crate::error::SwitchboardError;
use crate::lock;
use crate::storage::{EventOutcome, Storage, Submission, SubmissionOutcome, SubmissionRejection};

/// Limits on a group, and on waiting submissions.
#[derive(Clone, Copy, Debug)]
pub struct CommitLimits {
    /// Submissions that may wait; further ones are rejected.
    pub queue: usize,
    /// Events in a group, unless a single submission has more.
    pub items: usize,
    /// Bytes of envelopes in a group, unless a single submission has more.
    pub bytes: usize,
    /// Concurrent commits.
    pub groups: usize,
}

impl Default for CommitLimits {
    fn default() -> Self {
        Self { queue: 1024, items: 1_000, bytes: 2 << 20, groups: 1 }
    }
}

/// Result of a submission: the outcome of each event.
pub type SubmitResult = Result<Vec<Result<EventOutcome, Unstored>>, SubmitError>;

/// Reason why one event of a submission was not stored, while others may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unstored {
    /// The store refuses its content.
    Content,
    /// The hold or the token ended after earlier events were stored.
    Rejected(SubmissionRejection),
}

/// Reason why a submission was not stored as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// Its hold or its token is no longer valid; nothing was stored.
    Rejected(SubmissionRejection),
    /// Too many submissions wait; nothing was stored.
    Full,
    /// The switchboard is shutting down; nothing was stored.
    Closed,
    /// The store failed; the error says whether the events may be stored. Submit them again.
    Store(SwitchboardError),
}

/// Called after each try to commit.
pub type OnCommit = Arc<dyn Fn(TriedCommit) + Send + Sync>;

/// A transaction that was tried.
#[derive(Clone, Copy, Debug)]
pub struct TriedCommit {
    /// Number of its submissions.
    pub submissions: usize,
    /// Number of its events.
    pub events: usize,
    /// Its duration.
    pub took: Duration,
    /// Whether the store answered that it is committed; after an unknown error it may be, too.
    pub is_committed: bool,
}

/// Commits submissions in groups.
pub struct Committer {
    queue: mpsc::Sender<PendingSubmission>,
    closing: Arc<Notify>,
    /// Taken by the caller that waits for its end.
    task: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Committer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Committer").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

struct PendingSubmission {
    submission: Submission,
    answer: oneshot::Sender<SubmitResult>,
    share: Option<MemoryShare>,
}

impl Committer {
    /// Starts the task that commits. It ends after [`Committer::close`].
    pub fn start(storage: Arc<dyn Storage>, limits: CommitLimits, on_commit: OnCommit) -> Self {
        let (queue, waiting) = mpsc::channel(limits.queue);
        let closing = Arc::new(Notify::new());
        let groups = GroupBuilder {
            commit: Arc::new(GroupCommitter { storage, on_commit }),
            permits: Arc::new(Semaphore::new(limits.groups)),
            limits,
            kept_back: None,
        };
        let task = tokio::spawn(groups.run(waiting, Arc::clone(&closing)));
        Self { queue, closing, task: Mutex::new(Some(task)) }
    }

    /// Waits until the submission is durable, or was refused.
    pub async fn submit(&self, submission: Submission) -> SubmitResult {
        self.submit_with(submission, None).await
    }

    /// Submits with reserved memory, which stays reserved until the submission is settled, even if
    /// the client goes away.
    pub(crate) async fn submit_with(
        &self,
        submission: Submission,
        share: Option<MemoryShare>,
    ) -> SubmitResult {
        let (answer, settled) = oneshot::channel();
        self.queue.try_send(PendingSubmission { submission, answer, share }).map_err(|error| {
            match error {
                mpsc::error::TrySendError::Full(_) => SubmitError::Full,
                mpsc::error::TrySendError::Closed(_) => SubmitError::Closed,
            }
        })?;
        let lost = || SwitchboardError::unknown(Code::Failed, "the commit task has stopped");
        settled.await.unwrap_or_else(|_| Err(SubmitError::Store(lost())))
    }

    /// Returns the number of waiting submissions.
    pub fn waiting(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }

    /// Accepts no more submissions, and waits until the waiting ones are committed.
    pub async fn close(&self) {
        self.closing.notify_one();
        let task = lock(&self.task).take();
        if let Some(task) = task {
            // The task ends by itself, or with the runtime.
            let _ = task.await;
        }
    }
}

struct GroupBuilder {
    commit: Arc<GroupCommitter>,
    permits: Arc<Semaphore>,
    limits: CommitLimits,
    /// Submission that did not fit into the last group.
    kept_back: Option<PendingSubmission>,
}

impl GroupBuilder {
    async fn run(mut self, mut waiting: mpsc::Receiver<PendingSubmission>, closing: Arc<Notify>) {
        loop {
            // Submissions that arrive while no permit is free go into the next group.
            let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else { return };
            let first = match self.kept_back.take() {
                Some(first) => Some(first),
                None => tokio::select! {
                    first = waiting.recv() => first,
                    () = closing.notified() => {
                        waiting.close();
                        waiting.recv().await
                    }
                },
            };
            let Some(first) = first else { break };
            let group = self.gather(first, &mut waiting);
            tokio::spawn(Arc::clone(&self.commit).settle(group, permit));
        }
        // All permits are free when the last group is settled.
        let all = u32::try_from(self.limits.groups).unwrap_or(u32::MAX);
        let _ = self.permits.acquire_many(all).await;
    }

    fn gather(
        &mut self,
        first: PendingSubmission,
        waiting: &mut mpsc::Receiver<PendingSubmission>,
    ) -> Vec<PendingSubmission> {
        let (mut items, mut bytes) = size(&first.submission);
        let mut group = vec![first];
        while let Ok(next) = waiting.try_recv() {
            let (more_items, more_bytes) = size(&next.submission);
            items += more_items;
            bytes += more_bytes;
            if items > self.limits.items || bytes > self.limits.bytes {
                self.kept_back = Some(next);
                break;
            }
            group.push(next);
        }
        group
    }
}

fn size(submission: &Submission) -> (usize, usize) {
    let bytes = submission.items.iter().map(|item| item.event.envelope.len()).sum();
    (submission.items.len(), bytes)
}

/// Returns whether the store refused one row of the statement.
pub(crate) fn is_about_content(error: &SwitchboardError) -> bool {
    !error.is_unknown() && matches!(error.code(), Code::Unstorable | Code::Exhausted)
}

struct GroupCommitter {
    storage: Arc<dyn Storage>,
    on_commit: OnCommit,
}

impl GroupCommitter {
    async fn settle(self: Arc<Self>, group: Vec<PendingSubmission>, permit: OwnedSemaphorePermit) {
        let (submissions, answers): (Vec<_>, Vec<_>) =
            group.into_iter().map(|it| (it.submission, (it.answer, it.share))).unzip();
        let settled = self.commit(submissions).await;
        drop(permit);
        for ((answer, _share), settled) in answers.into_iter().zip(settled) {
            // A client that disconnected gets no answer; its events are stored all the same.
            let _ = answer.send(settled);
        }
    }

    /// Commits a group. If the store rejects its content, the group is halved until the rejected
    /// submission is alone, so that only this one fails.
    async fn commit(&self, group: Vec<Submission>) -> Vec<SubmitResult> {
        let mut answers = Vec::with_capacity(group.len());
        let mut parts = VecDeque::from([group]);
        while let Some(mut part) = parts.pop_front() {
            match self.try_commit(&part).await {
                Ok(settled) => answers.extend(settled.into_iter().map(whole)),
                Err(error) if !is_about_content(&error) => {
                    answers.extend(part.iter().map(|_| Err(SubmitError::Store(error.clone()))));
                }
                Err(_) if part.len() > 1 => {
                    let rest = part.split_off(part.len() / 2);
                    parts.push_front(rest);
                    parts.push_front(part);
                }
                Err(error) => {
                    for submission in part {
                        answers.push(self.one_by_one(submission, &error).await);
                    }
                }
            }
        }
        answers
    }

    /// Commits the events of one submission one by one, under the same fence and token. If either
    /// ends meanwhile, the remaining events are rejected; the stored ones stay accepted.
    async fn one_by_one(&self, submission: Submission, error: &SwitchboardError) -> SubmitResult {
        let Submission { items, fence, token_id } = submission;
        if items.is_empty() {
            return Err(SubmitError::Store(error.clone()));
        }
        let mut outcomes = Vec::with_capacity(items.len());
        let mut left = items.len();
        for item in items {
            let alone =
                Submission { items: vec![item], fence: fence.clone(), token_id: token_id.clone() };
            match self.try_commit(&[alone]).await {
                Ok(mut settled) => match settled.pop() {
                    Some(SubmissionOutcome::Stored(stored)) => {
                        outcomes.extend(stored.into_iter().map(Ok));
                    }
                    Some(SubmissionOutcome::Rejected(why)) => {
                        if outcomes.iter().all(Result::is_err) {
                            return Err(SubmitError::Rejected(why));
                        }
                        outcomes.extend(vec![Err(Unstored::Rejected(why)); left]);
                        break;
                    }
                    None => outcomes.push(Err(Unstored::Content)),
                },
                Err(error) if is_about_content(&error) => outcomes.push(Err(Unstored::Content)),
                Err(error) => return Err(SubmitError::Store(error)),
            }
            left -= 1;
        }
        Ok(outcomes)
    }

    async fn try_commit(
        &self,
        group: &[Submission],
    ) -> Result<Vec<SubmissionOutcome>, SwitchboardError> {
        let began = BootClock.now();
        let settled = self.storage.commit(group).await;
        (self.on_commit)(TriedCommit {
            submissions: group.len(),
            events: group.iter().map(|submission| submission.items.len()).sum(),
            took: BootClock.now().since(began),
            is_committed: settled.is_ok(),
        });
        settled
    }
}

fn whole(settled: SubmissionOutcome) -> SubmitResult {
    match settled {
        SubmissionOutcome::Stored(outcomes) => Ok(outcomes.into_iter().map(Ok).collect()),
        SubmissionOutcome::Rejected(why) => Err(SubmitError::Rejected(why)),
    }
}
