//! Commit groups of replicas.

use std::sync::{Arc, mpsc};

use tenure_switchboard::commit::{CommitLimits, Committer, SubmitResult, TriedCommit};
use tenure_switchboard::storage::{Inbox as _, Submission, TokenEnd};

use super::convert::{fate, outcome, submission};
use super::submit::QueuedSubmission;
use super::{SwitchEvent, SwitchReplica, SwitchWorld};
use crate::switchboard::story::{EventKey, SentSubmission, SubmissionFate, SwitchStep};
use crate::switchboard::{SECOND, SwitchFault};

impl SwitchWorld {
    /// Starts the process of a replica.
    pub(super) fn start_replica(&self) -> SwitchReplica {
        let limits = CommitLimits { items: self.scenario.group_items, ..CommitLimits::default() };
        let (seen, committed) = mpsc::channel();
        let on_commit = move |tried: TriedCommit| {
            if tried.is_committed {
                // Nobody asks what a replica did that was stopped.
                let _ = seen.send(tried.submissions);
            }
        };
        let _context = self.runtime.enter();
        let committer = Committer::start(self.storage.clone(), limits, Arc::new(on_commit));
        SwitchReplica { is_alive: true, committer, committed, waiting: Vec::new(), ticked: None }
    }

    pub(super) fn commit(&mut self, replica: usize) {
        let group = std::mem::take(&mut self.replicas[replica].waiting);
        if group.is_empty() || !self.replicas[replica].is_alive {
            return group.iter().for_each(|it| self.keep_for_later(it));
        }
        self.line(&format!("r{replica}"), || format!("commits {} submissions", group.len()));
        if self.strikes(SwitchFault::RequestLost, 40) {
            group.iter().for_each(|it| self.keep_for_later(it));
        } else if self.strikes(SwitchFault::LateCommit, 80) {
            group.iter().for_each(|it| self.keep_for_later(it));
            self.soon(30 * SECOND, SwitchEvent::Late(group));
        } else {
            let fates = self.through_committer(replica, &group);
            for fate in &fates {
                if let SubmissionFate::Failed(why) = fate {
                    self.find("error", format!("a submission failed: {why}"));
                }
            }
            let sent = self.answered(&group, &fates);
            let committed: Vec<usize> = self.replicas[replica].committed.try_iter().collect();
            match transactions(sent, &committed) {
                Some(transactions) => self.record(transactions),
                None => self.find("group", format!("transactions of {committed:?} submissions")),
            }
            self.settle(&group, fates);
        }
    }

    /// Commits through the replica's own committer, which forms the groups.
    fn through_committer(
        &mut self,
        replica: usize,
        group: &[QueuedSubmission],
    ) -> Vec<SubmissionFate> {
        let committer = &self.replicas[replica].committer;
        let submissions: Vec<Submission> = group.iter().map(submission).collect();
        let all = async {
            // All are queued before the first one is committed, so that they form a group.
            let mut waiting: Vec<_> =
                submissions.into_iter().map(|it| Box::pin(committer.submit(it))).collect();
            let mut settled: Vec<Option<SubmitResult>> = waiting.iter().map(|_| None).collect();
            std::future::poll_fn(|context| {
                let mut is_ready = true;
                for (waiting, settled) in waiting.iter_mut().zip(&mut settled) {
                    if settled.is_none() {
                        match waiting.as_mut().poll(context) {
                            std::task::Poll::Ready(result) => *settled = Some(result),
                            std::task::Poll::Pending => is_ready = false,
                        }
                    }
                }
                if is_ready { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            })
            .await;
            settled.into_iter().flatten().map(fate).collect()
        };
        self.runtime.block_on(all)
    }

    /// Commits a group whose clients no longer wait.
    pub(super) fn commit_late(&mut self, group: Vec<QueuedSubmission>) {
        let submissions: Vec<Submission> = group.iter().map(submission).collect();
        let answer = self.runtime.block_on(self.storage.commit(&submissions));
        let fates: Vec<SubmissionFate> = match answer {
            Ok(outcomes) => outcomes.into_iter().map(outcome).collect(),
            Err(error) => vec![SubmissionFate::Failed(error.to_string()); group.len()],
        };
        self.line("late", || format!("commits {} submissions", group.len()));
        let sent = self.answered(&group, &fates);
        self.record(vec![sent]);
    }

    /// Answers the producers of a group, unless the answer is lost.
    fn settle(&mut self, group: &[QueuedSubmission], fates: Vec<SubmissionFate>) {
        for (sent, fate) in group.iter().zip(fates) {
            if self.strikes(SwitchFault::AnswerLost, 100) {
                self.keep_for_later(sent);
                continue;
            }
            match fate {
                SubmissionFate::Stored(outcomes) => {
                    if outcomes.iter().any(Option::is_none) {
                        self.keep_for_later(sent);
                    }
                }
                SubmissionFate::Fenced(_) => {
                    self.keep_for_later(sent);
                    // A zombie notices, or not.
                    if self.rng.chance(500) {
                        self.producers[sent.producer].ends = self.now;
                    }
                }
                SubmissionFate::Ended(_) => {
                    self.keep_for_later(sent);
                    if self.rng.chance(500) {
                        let token = self.make_token(sent.source);
                        self.producers[sent.producer].token = Some(token);
                    }
                }
                SubmissionFate::Failed(_) => self.keep_for_later(sent),
            }
        }
    }

    /// Returns the submissions of a group with their answers.
    fn answered(
        &mut self,
        group: &[QueuedSubmission],
        fates: &[SubmissionFate],
    ) -> Vec<SentSubmission> {
        if group.len() > 1 {
            self.reached("group");
        }
        let mut answered = Vec::new();
        for (queued, fate) in group.iter().zip(fates) {
            let QueuedSubmission { producer, source, token, hold, items } = queued.clone();
            let sent = SentSubmission { source, token, hold, items, fate: fate.clone() };
            self.line(&format!("p{producer}"), || sent.to_string());
            self.count_fate(&sent);
            answered.push(sent);
        }
        answered
    }

    /// Records transactions, and lets the observer read.
    fn record(&mut self, transactions: Vec<Vec<SentSubmission>>) {
        let wall = self.wall();
        let steps = transactions.into_iter().map(|sent| SwitchStep::Committed { wall, sent });
        self.history.extend(steps);
        self.observe();
    }

    fn count_fate(&mut self, sent: &SentSubmission) {
        match &sent.fate {
            SubmissionFate::Stored(outcomes) => {
                if outcomes.is_empty() && sent.hold.is_some() {
                    self.reached("announced");
                }
                for ((_, event), outcome) in sent.items.iter().zip(outcomes) {
                    let kind = match outcome {
                        None => "unstorable",
                        Some(it) if it.reused => "reused",
                        Some(it) if it.duplicate && matches!(event.key, EventKey::Content(..)) => {
                            "known-hour"
                        }
                        Some(it) if it.duplicate => "duplicate",
                        Some(_) => "stored",
                    };
                    self.reached(kind);
                }
            }
            SubmissionFate::Fenced(told) => {
                self.reached(if told.is_some() { "fenced" } else { "fenced-of-all" });
            }
            SubmissionFate::Ended(TokenEnd::Revoked) => self.reached("token-revoked"),
            SubmissionFate::Ended(TokenEnd::Expired) => self.reached("token-expired"),
            SubmissionFate::Ended(TokenEnd::Gone) => self.reached("token-gone"),
            SubmissionFate::Failed(_) => self.reached("group-refused"),
        }
    }
}

/// Divides answered submissions into the transactions in which they were committed, by the numbers
/// of submissions in each. If the content of an event is refused, each event of its submission is
/// committed alone. Returns `None` if the numbers do not fit.
fn transactions(
    sent: Vec<SentSubmission>,
    committed: &[usize],
) -> Option<Vec<Vec<SentSubmission>>> {
    let mut committed = committed.iter();
    let mut transactions = Vec::new();
    let mut sent = sent.into_iter();
    while let Some(first) = sent.next() {
        match first.fate.clone() {
            SubmissionFate::Stored(outcomes) if outcomes.contains(&None) => {
                for (item, outcome) in first.items.clone().into_iter().zip(outcomes) {
                    if outcome.is_some() && committed.next() != Some(&1) {
                        return None;
                    }
                    let fate = SubmissionFate::Stored(vec![outcome]);
                    let alone = SentSubmission { items: vec![item], fate, ..first.clone() };
                    transactions.push(vec![alone]);
                }
            }
            _ => {
                let others = committed.next()?.checked_sub(1)?;
                transactions.push([first].into_iter().chain(sent.by_ref().take(others)).collect());
            }
        }
    }
    committed.next().is_none().then_some(transactions)
}
