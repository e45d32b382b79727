//! Producers of events.

use uuid::Uuid;

use super::{FOREVER, MAX_COMMIT_TIME, SwitchEvent, SwitchWorld};
use crate::switchboard::story::{EventKey, SentHold, SourceEvent};
use crate::switchboard::{HOUR, MINUTE, Micros, SwitchFault};

/// A process that submits events.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventProducer {
    source: usize,
    hold: Option<SentHold>,
    pub(super) token: Option<usize>,
    /// It submits until then.
    pub(super) ends: Micros,
    is_new: bool,
}

/// A submission that waits in a replica.
#[derive(Clone, Debug)]
pub(super) struct QueuedSubmission {
    pub(super) producer: usize,
    pub(super) source: usize,
    pub(super) token: Option<usize>,
    pub(super) hold: Option<SentHold>,
    pub(super) items: Vec<(Uuid, SourceEvent)>,
}

impl SwitchWorld {
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
        self.line(&format!("p{}", self.producers.len()), || {
            let hold = hold.map_or_else(|| "no duty".to_owned(), |hold| hold.to_string());
            format!("begins: e{source}, {hold}, token {token:?}")
        });
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
        let fresh = self.newest.filter(|(_, at)| self.now - at < self.scenario.keep.bodies / 8);
        if let (Some((taken, _)), Some(item)) = (fresh, items.last_mut())
            && self.strikes(SwitchFault::RefusedContent, 80)
        {
            // Ids are unique, so the store refuses this event.
            item.0 = taken;
        }
        let EventProducer { source, hold, token, .. } = producer;
        let queued = QueuedSubmission { producer: number, source, token, hold, items };
        if self.strikes(SwitchFault::RequestLost, 80) {
            return self.keep_for_later(&queued);
        }
        let alive: Vec<usize> =
            (0..self.replicas.len()).filter(|it| self.replicas[*it].is_alive).collect();
        let Some(replica) = self.rng.pick(&alive) else { return self.keep_for_later(&queued) };
        self.replicas[replica].waiting.push(queued);
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
    pub(super) fn keep_for_later(&mut self, queued: &QueuedSubmission) {
        self.backlog.extend(queued.items.iter().map(|(_, event)| *event));
        let excess = self.backlog.len().saturating_sub(40);
        self.backlog.drain(..excess);
    }
}
