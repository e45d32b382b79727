//! Producers of events, and the commit groups of replicas.

use std::sync::Arc;

use tenure_core::{DutyKey, Epoch, InstanceId};
use tenure_switchboard::commit::{CommitLimits, Committer, SubmitError, SubmitResult};
use tenure_switchboard::storage::{
    Inbox as _, IngestFence, NewToken, SourceScope, Submission, SubmissionOutcome,
    SubmissionRejection, SubmittedEvent, Tokens as _,
};
use tenure_wire::ingest::{Dedupe, IngestEvent};
use uuid::Uuid;

use super::{MAX_COMMIT_TIME, SwitchEvent, SwitchWorld};
use crate::switchboard::story::{
    EventKey, SentHold, SentSubmission, SourceEvent, SubmissionFate, SwitchStep,
};
use crate::switchboard::{DAY, HOUR, MINUTE, Micros, SECOND, SwitchFault};

/// An event to submit.
pub(super) type SentDraft = SourceEvent;

/// A process that submits events.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventProducer {
    source: usize,
    hold: Option<SentHold>,
    token: Option<usize>,
    /// It submits until then.
    pub(super) ends: Micros,
    is_new: bool,
}

/// A submission that waits in a replica.
#[derive(Clone, Debug)]
pub(super) struct PendingGroup {
    producer: usize,
    source: usize,
    token: Option<usize>,
    hold: Option<SentHold>,
    items: Vec<(Uuid, SourceEvent)>,
    has_refused: bool,
}

const FOREVER: Micros = i64::MAX;

impl SwitchWorld {
    pub(super) fn committer(&self) -> Committer {
        let limits = CommitLimits { items: self.scenario.group_items, ..CommitLimits::default() };
        let _context = self.runtime.enter();
        Committer::start(self.storage.clone(), limits, Arc::new(|_, _| {}))
    }

    /// Creates a producer for each source, and some without a duty.
    pub(super) fn enlist_producers(&mut self) {
        for source in 0..self.scenario.sources {
            let duty = self.rng.below(self.scenario.duties as u64) as usize;
            self.produce(source, Some(duty));
        }
        if self.rng.chance(500) {
            let source = self.rng.below(self.scenario.sources as u64) as usize;
            self.produce(source, None);
        }
    }

    /// Creates a producer; under a new epoch of its duty.
    fn produce(&mut self, source: usize, duty: Option<usize>) {
        self.instances += 1;
        let hold = duty.map(|duty| {
            self.epochs[duty] += self.rng.between(1, 3);
            SentHold { duty, epoch: self.epochs[duty], instance: self.instances }
        });
        let token = self.rng.chance(700).then(|| self.token(source));
        self.add_producer(EventProducer { source, hold, token, ends: FOREVER, is_new: true });
    }

    fn add_producer(&mut self, producer: EventProducer) {
        self.producers.push(producer);
        let soon = self.scenario.gap / 4;
        self.soon(soon, SwitchEvent::Submit(self.producers.len() - 1));
    }

    /// Another producer takes over a duty; the earlier holders stop, or go on for a while.
    pub(super) fn take_over(&mut self) {
        self.soon(self.scenario.heal / 6, SwitchEvent::Takeover);
        if self.is_healed {
            return;
        }
        let duty = self.rng.below(self.scenario.duties as u64) as usize;
        for number in 0..self.producers.len() {
            let holds = self.producers[number].hold.is_some_and(|hold| hold.duty == duty);
            if !holds || self.producers[number].ends <= self.now {
                continue;
            }
            let gap = self.scenario.gap;
            let more = if self.strikes(SwitchFault::Zombie, 800) { gap * 4 } else { 0 };
            let ends = &mut self.producers[number].ends;
            *ends = (*ends).min(self.now + more);
        }
        let source = self.rng.below(self.scenario.sources as u64) as usize;
        self.produce(source, Some(duty));
        if self.strikes(SwitchFault::SameEpoch, 400) {
            let mut twin = self.producers[self.producers.len() - 1];
            self.instances += 1;
            if let Some(hold) = &mut twin.hold {
                hold.instance = self.instances;
            }
            twin.ends = self.now + self.scenario.gap * 3;
            self.add_producer(twin);
        }
    }

    pub(super) fn make_token(&mut self, source: usize) -> usize {
        let number = self.tokens.len();
        let is_short = self.strikes(SwitchFault::TokenShort, 500);
        let lifetime = if is_short { self.scenario.heal / 8 } else { 500 * DAY };
        let token = NewToken {
            token_id: format!("tok_{number}"),
            hash: std::array::from_fn(|n| (number >> (8 * (n % 4))) as u8),
            environment: "dev".to_owned(),
            roles: vec!["ingest".to_owned()],
            scope: Some(scope(source)),
            lifetime,
            by: "sim".to_owned(),
            description: String::new(),
            replaces: None,
        };
        let answer = self.runtime.block_on(self.storage.create_token(&token));
        self.sound("create_token", answer);
        self.tokens.push((source, false));
        let expires_at = self.wall() + lifetime;
        self.history.push(SwitchStep::TokenMade { token: number, expires_at });
        number
    }

    /// Draws events: new ones, repeated ones, and ones that reuse a key.
    fn draft(&mut self, source: usize) -> Vec<SourceEvent> {
        let count = match self.rng.below(10) {
            0 => 0,
            1..8 => 1,
            _ => self.rng.between(2, 5),
        };
        let mut drafts = Vec::new();
        for _ in 0..count {
            let earlier: Vec<SourceEvent> =
                self.events.iter().filter(|it| it.source == source).copied().collect();
            let recent = &earlier[earlier.len().saturating_sub(20)..];
            let draft = match self.rng.below(10) {
                0..2 => self.rng.pick(recent),
                2 => self.rng.pick(recent).map(|it| SourceEvent { payload: it.payload + 1, ..it }),
                3..5 => Some(self.content(source)),
                _ => None,
            };
            let draft = draft.unwrap_or_else(|| self.numbered(source));
            self.events.push(draft);
            drafts.push(draft);
        }
        let waiting = self.backlog.iter().position(|it| it.source == source);
        if let Some(waiting) = waiting {
            drafts.push(self.backlog.remove(waiting));
        }
        drafts
    }

    fn numbered(&mut self, source: usize) -> SourceEvent {
        let number = self.events.len() as u64;
        let (key, observed) = (EventKey::Number(number), self.unix());
        SourceEvent { source, key, payload: number, observed }
    }

    /// Draws an event that is known by its content and the hour of its observation.
    fn content(&mut self, source: usize) -> SourceEvent {
        let observed = self.unix() - self.rng.below(50) as i64 * MINUTE;
        let text = self.rng.below(3);
        let key = EventKey::Content(text, observed.div_euclid(HOUR));
        SourceEvent { source, key, payload: text, observed }
    }

    pub(super) fn submit(&mut self, number: usize) {
        let producer = self.producers[number];
        if producer.ends <= self.now {
            return;
        }
        self.soon(self.gap(), SwitchEvent::Submit(number));
        let announces = producer.hold.is_some() && producer.is_new;
        self.producers[number].is_new = false;
        let drafts = if announces { Vec::new() } else { self.draft(producer.source) };
        let mut items: Vec<(Uuid, SourceEvent)> =
            drafts.into_iter().map(|draft| (self.new_id(), draft)).collect();
        let mut has_refused = false;
        let fresh = self.newest.filter(|(_, at)| self.now - at < self.scenario.keep.bodies / 8);
        if let (Some((taken, _)), Some(item)) = (fresh, items.last_mut())
            && self.scenario.has(SwitchFault::RefusedContent)
            && !self.is_healed
            && self.rng.chance(80)
        {
            // Ids are unique, so the store refuses this event.
            self.coverage.count("fault", SwitchFault::RefusedContent.as_str());
            item.0 = taken;
            has_refused = true;
        }
        let EventProducer { source, hold, token, .. } = producer;
        let group = PendingGroup { producer: number, source, token, hold, items, has_refused };
        if self.strikes(SwitchFault::RequestLost, 80) {
            return self.keep_for_later(&group);
        }
        let alive: Vec<usize> =
            (0..self.replicas.len()).filter(|it| self.replicas[*it].is_alive).collect();
        let Some(replica) = self.rng.pick(&alive) else { return self.keep_for_later(&group) };
        self.replicas[replica].waiting.push(group);
        if self.replicas[replica].waiting.len() == 1 {
            // Sometimes the replica is busy, and others join the group.
            let busy = if self.rng.chance(300) { self.scenario.gap / 2 } else { 0 };
            let time = self.rng.between(1, MAX_COMMIT_TIME) as Micros + busy;
            self.at(self.now + time, SwitchEvent::Commit(replica));
        }
    }

    fn new_id(&mut self) -> Uuid {
        // The time and random bits, as in version 7.
        let millis = (self.unix() / 1_000) as u128;
        Uuid::from_u128((millis << 80) | (self.rng.wide() >> 48))
    }

    /// Submits these events again later.
    pub(super) fn keep_for_later(&mut self, group: &PendingGroup) {
        self.backlog.extend(group.items.iter().map(|(_, event)| *event));
        let excess = self.backlog.len().saturating_sub(40);
        self.backlog.drain(..excess);
    }

    pub(super) fn commit(&mut self, replica: usize) {
        let group = std::mem::take(&mut self.replicas[replica].waiting);
        if group.is_empty() || !self.replicas[replica].is_alive {
            return group.iter().for_each(|it| self.keep_for_later(it));
        }
        if self.strikes(SwitchFault::RequestLost, 40) {
            group.iter().for_each(|it| self.keep_for_later(it));
        } else if self.strikes(SwitchFault::LateCommit, 80) {
            group.iter().for_each(|it| self.keep_for_later(it));
            self.soon(30 * SECOND, SwitchEvent::Late(group));
        } else {
            let fates = self.through_committer(replica, &group);
            self.settle(&group, fates);
        }
    }

    /// Commits through the replica's own committer, which forms the groups.
    fn through_committer(&mut self, replica: usize, group: &[PendingGroup]) -> Vec<SubmissionFate> {
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
    pub(super) fn commit_late(&mut self, group: Vec<PendingGroup>) {
        let submissions: Vec<Submission> = group.iter().map(submission).collect();
        let answer = self.runtime.block_on(self.storage.commit(&submissions));
        let fates = match answer {
            Ok(outcomes) => outcomes.into_iter().map(outcome).collect(),
            Err(error) => vec![SubmissionFate::Failed(error.to_string()); group.len()],
        };
        self.record(&group, &fates, true);
    }

    /// Records a group, and tells its producers unless the answer is lost.
    fn settle(&mut self, group: &[PendingGroup], fates: Vec<SubmissionFate>) {
        let is_group =
            self.scenario.group_items > 100 && !group.iter().any(|group| group.has_refused);
        self.record(group, &fates, is_group);
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

    fn record(&mut self, group: &[PendingGroup], fates: &[SubmissionFate], is_group: bool) {
        if group.len() > 1 {
            self.reached("group");
        }
        let mut sent = Vec::new();
        for (group, fate) in group.iter().zip(fates) {
            self.count_fate(group, fate);
            self.line(&format!("p{}", group.producer), || describe(group, fate));
            let PendingGroup { source, token, hold, items, .. } = group.clone();
            sent.push(SentSubmission { source, token, hold, items, fate: fate.clone() });
        }
        let (at, wall) = (self.now, self.wall());
        if self.offset > 0 {
            self.ahead.push(wall);
        }
        self.history.push(SwitchStep::Committed { at, wall, sent, is_group });
        self.observe();
    }

    fn count_fate(&mut self, group: &PendingGroup, fate: &SubmissionFate) {
        use tenure_switchboard::storage::TokenEnd;
        match fate {
            SubmissionFate::Stored(outcomes) => {
                if outcomes.is_empty() && group.hold.is_some() {
                    self.reached("announced");
                }
                for ((_, event), outcome) in group.items.iter().zip(outcomes) {
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
            SubmissionFate::Failed(_) => self.reached("failed"),
        }
    }
}

fn describe(group: &PendingGroup, fate: &SubmissionFate) -> String {
    let hold = group.hold.map_or_else(String::new, |it| {
        format!(" under d{} {}@i{}", it.duty, it.epoch, it.instance)
    });
    let token = group.token.map_or_else(String::new, |it| format!(" with t{it}"));
    let keys: Vec<_> = group.items.iter().map(|(_, event)| event.key).collect();
    format!("e{} {keys:?}{hold}{token}: {fate:?}", group.source)
}

/// Returns the source with this number, for a token.
pub(super) fn scope(source: usize) -> SourceScope {
    SourceScope {
        channel: "api".to_owned(),
        provider: "internal".to_owned(),
        endpoint_identity: endpoint(source),
    }
}

pub(super) fn endpoint(source: usize) -> String {
    format!("e{source}")
}

fn digest(source: usize, key: EventKey) -> [u8; 32] {
    let words = match key {
        EventKey::Number(number) => [source as u64, 0, number, 0],
        EventKey::Content(text, hour) => [source as u64, 1, text, hour as u64],
    };
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    std::array::from_fn(|at| bytes[at])
}

fn event(of: SourceEvent) -> IngestEvent {
    let SourceEvent { source, key, payload, observed } = of;
    let previous_hour = match key {
        EventKey::Number(_) => None,
        EventKey::Content(text, hour) => Some(digest(source, EventKey::Content(text, hour - 1))),
    };
    let SourceScope { channel, provider, endpoint_identity } = scope(source);
    let mut payload_digest = [0; 32];
    payload_digest[..8].copy_from_slice(&payload.to_be_bytes());
    let dedupe = Dedupe { key: format!("{key:?}"), digest: digest(source, key), previous_hour };
    IngestEvent {
        channel,
        provider,
        endpoint_identity,
        sender_identity: "sim".to_owned(),
        thread_identity: None,
        policy_tier: "default",
        observed_at_micros: observed,
        dedupe,
        payload_digest,
        envelope: "{}".to_owned(),
    }
}

fn submission(group: &PendingGroup) -> Submission {
    // The names and numbers are always valid.
    let fence = |hold: SentHold| IngestFence {
        duty: DutyKey::new("sim", format!("d{}", hold.duty)).expect("a duty"),
        epoch: Epoch::new(hold.epoch).expect("an epoch"),
        instance: InstanceId::new(format!("i{}", hold.instance)).expect("an instance"),
    };
    let items =
        group.items.iter().map(|(id, of)| SubmittedEvent { request_id: *id, event: event(*of) });
    Submission {
        items: items.collect(),
        fence: group.hold.map(fence),
        token_id: group.token.map(|token| format!("tok_{token}")),
    }
}

fn rejected(why: SubmissionRejection) -> SubmissionFate {
    match why {
        SubmissionRejection::Fenced(told) => SubmissionFate::Fenced(told.map(|told| {
            let instance = told.instance.trim_start_matches('i').parse().unwrap_or(0);
            (told.epoch.get(), instance)
        })),
        SubmissionRejection::BadFence(why) => SubmissionFate::Failed(format!("{why:?}")),
        SubmissionRejection::TokenEnded(end) => SubmissionFate::Ended(end),
    }
}

fn outcome(outcome: SubmissionOutcome) -> SubmissionFate {
    match outcome {
        SubmissionOutcome::Stored(outcomes) => {
            SubmissionFate::Stored(outcomes.into_iter().map(Some).collect())
        }
        SubmissionOutcome::Rejected(why) => rejected(why),
    }
}

fn fate(result: SubmitResult) -> SubmissionFate {
    match result {
        Ok(outcomes) => SubmissionFate::Stored(outcomes.into_iter().map(Result::ok).collect()),
        Err(SubmitError::Rejected(why)) => rejected(why),
        Err(error) => SubmissionFate::Failed(format!("{error:?}")),
    }
}
