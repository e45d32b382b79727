//! Looks: reading the group.

use std::collections::BTreeMap;
use std::time::Duration;

use super::join::MemberPhase;
use super::work::EngineHold;
use super::{Engine, Fold, GroupConfig, GroupView, StoreRequest, Ticket};
use crate::store::{Holder, Member};
use crate::{Change, DutyId, InstanceId, LocalInstant, Mutant, StoreError, Version};

const MIN_LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// Number of looks after which the holders are read even without a hint.
const HOLDERS_EVERY_LOOKS: u32 = 5;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LookSchedule {
    pub(super) at: LocalInstant,
    sent: Option<(Ticket, LocalInstant)>,
    began: LocalInstant,
    gap: Duration,
    holders: bool,
    /// Something changed while a look was pending.
    again: bool,
    count: u32,
    failed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ObservedGroup {
    pub(super) members: Vec<Member>,
    /// Holder of each duty that was ever granted.
    pub(super) holders: BTreeMap<DutyId, Option<InstanceId>>,
    pub(super) group: GroupConfig,
    pub(super) version: Version,
}

impl LookSchedule {
    pub(super) fn new(now: LocalInstant) -> Self {
        Self {
            at: now,
            sent: None,
            began: now,
            gap: MIN_LOOK_INTERVAL,
            holders: true,
            again: false,
            count: 0,
            failed: false,
        }
    }

    pub(super) fn is_on_its_way(&self) -> bool {
        self.sent.is_some()
    }

    pub(super) fn ticket(&mut self) -> Option<&mut Ticket> {
        self.sent.as_mut().map(|(ticket, _)| ticket)
    }

    pub(super) fn fold(&mut self, fold: &Fold) {
        let now = fold.now;
        self.at = fold.timer(self.at);
        self.began = fold.fresh(self.began);
        if let Some((_, at)) = &mut self.sent {
            *at = now;
        }
        (self.gap, self.failed) = (MIN_LOOK_INTERVAL, false);
        (self.count, self.holders) = (HOLDERS_EVERY_LOOKS - 1, true);
    }

    /// Drops a pending look, because the session has ended.
    pub(super) fn forget(&mut self) {
        self.sent = None;
        self.again = false;
        self.holders = true;
    }
}

impl Engine {
    /// Schedules a look that reads the holders, as soon as the minimum interval allows.
    pub(super) fn look_now(&mut self, now: LocalInstant) {
        let looking = &mut self.looking;
        looking.holders = true;
        looking.again = looking.sent.is_some();
        looking.at = looking.at.min(now.max(looking.began.plus(looking.gap)));
    }

    pub(super) fn hinted(&mut self, now: LocalInstant) {
        if matches!(self.phase, MemberPhase::Member) {
            self.look_now(now);
        }
    }

    pub(super) fn look_if_due(&mut self, now: LocalInstant) {
        let looking = &mut self.looking;
        if looking.sent.is_some() || now < looking.at || !matches!(self.phase, MemberPhase::Member)
        {
            return;
        }
        looking.count += 1;
        // Foreign members give no hints, and take a duty back if nobody else claims it soon.
        let foreign =
            |seen: &ObservedGroup| seen.members.iter().any(|member| member.nonce.is_none());
        let holders = looking.holders
            || self.seen.as_ref().is_some_and(foreign)
            || looking.count.is_multiple_of(HOLDERS_EVERY_LOOKS);
        looking.holders = false;
        looking.began = now;
        let request = StoreRequest::Look { group: self.settings.group.clone(), holders };
        let ticket = self.ask(request, self.request_timeout());
        self.looking.sent = Some((ticket, now));
    }

    pub(super) fn looked(
        &mut self,
        ticket: Ticket,
        result: Result<GroupView, StoreError>,
        now: LocalInstant,
    ) {
        if self.read_group(ticket, &result, now) {
            return;
        }
        let Some((_, sent)) = self.looking.sent.take_if(|(sent, _)| *sent == ticket) else {
            return;
        };
        let view = match result {
            Ok(view) => view,
            Err(error) => return self.look_failed(&error, sent, now),
        };
        self.looking.failed = false;
        // A group that takes long to read is read less often.
        self.looking.gap = MIN_LOOK_INTERVAL.max(now.since(sent) * 2);
        self.looking.at = now.plus(self.next_look(&view));
        if std::mem::take(&mut self.looking.again) {
            self.look_now(now);
        }
        self.take_view(view, ticket, now);
    }

    fn look_failed(&mut self, error: &StoreError, sent: LocalInstant, now: LocalInstant) {
        if Self::is_reset(error) {
            return self.session_ended(sent, true, now);
        }
        self.looking.holders = true;
        self.looking.at = now.plus(self.settings.look_every);
        if !std::mem::replace(&mut self.looking.failed, true) {
            self.record(now, Change::LookFailed, None, None, error.problem().to_string());
        }
    }

    /// Returns the time until the first session of another member could end: an expiry makes no
    /// hint.
    fn next_look(&self, view: &GroupView) -> Duration {
        let me = &self.settings.instance;
        let others = view.members.iter().filter(|member| &member.instance != me);
        let first = others.map(|member| member.remaining).min();
        let first = first.map(|remaining| remaining + Duration::from_millis(2));
        // A store may round the remaining time down to zero.
        let soonest = self.looking.gap.max(Duration::from_millis(50));
        let every = self.settings.look_every;
        first.map_or(every, |first| first.max(soonest).min(every))
    }

    // Why: docs/decisions/0006-responses-match-requests.md
    fn take_view(&mut self, view: GroupView, asked: Ticket, now: LocalInstant) {
        let Some(group) = self.agree_on(&view.document, &view.members, now) else { return };
        let version = view.document.version;
        let changed = self.seen.as_ref().is_none_or(|seen| {
            seen.version != version || !same_members(&seen.members, &view.members)
        });
        self.hear_ourselves(&view.members);
        self.choose_name(&view.members);
        self.say_status(now);
        // The look does not show claims and releases made after it was sent.
        self.touched.retain(|_, at| *at >= asked);
        match view.holders {
            Some(mut holders) => {
                holders.retain(|holder| !self.touched.contains_key(&holder.duty.id));
                self.remember_holders(&holders, now);
                let holders = holders.into_iter();
                let holders = holders.map(|h| (h.duty.id, h.holder.map(|now| now.instance)));
                let mut holders: BTreeMap<_, _> = holders.collect();
                self.refused.retain(|duty, _| !matches!(holders.get(duty), Some(Some(_))));
                self.doubt(&holders, now);
                if let Some(seen) = self.seen.take() {
                    let mine = seen.holders.into_iter();
                    holders.extend(mine.filter(|(duty, _)| self.touched.contains_key(duty)));
                }
                self.seen = Some(ObservedGroup { members: view.members, holders, group, version });
                self.balance(true, now);
            }
            None => {
                if let Some(seen) = &mut self.seen {
                    (seen.members, seen.group, seen.version) = (view.members, group, version);
                }
                if changed {
                    self.look_now(now);
                }
            }
        }
    }

    /// Renews at once when a look shows that this member does not hold a duty it works on: somebody
    /// may have modified the store directly.
    fn doubt(&mut self, holders: &BTreeMap<DutyId, Option<InstanceId>>, now: LocalInstant) {
        let me = Some(Some(&self.settings.instance));
        let gone = |(duty, held): (&DutyId, &EngineHold)| {
            let shown = holders.get(duty).map(Option::as_ref);
            held.may_act() && !self.touched.contains_key(duty) && shown != me
        };
        if self.holds.iter().any(gone) {
            self.renew_now(now);
        }
    }

    /// Remembers each holder and the end of its session, for the record of the next grant.
    fn remember_holders(&mut self, holders: &[Holder], now: LocalInstant) {
        let me = &self.settings.instance;
        for holder in holders {
            let Some(of) = holder.holder.as_ref().filter(|of| &of.instance != me) else {
                continue;
            };
            let until = now.plus(of.remaining);
            self.last.insert(holder.duty.id.clone(), (of.instance.clone(), until));
        }
        self.give_back_orphans(holders, now);
    }

    /// Releases holds of this session that this member does not know: they come from a claim whose
    /// response was lost. They are claimed again, under a new epoch (R17).
    fn give_back_orphans(&mut self, holders: &[Holder], now: LocalInstant) {
        let me = self.settings.instance.clone();
        for holder in holders {
            let mine = holder.holder.as_ref().is_some_and(|of| of.instance == me);
            let duty = &holder.duty.id;
            let known = self.holds.contains_key(duty) || self.is_claiming(duty);
            if let (true, false, Some(epoch)) = (mine, known, holder.epoch)
                && !Mutant::R17Orphan.is_on()
            {
                self.give_back_unstarted(duty.clone(), epoch, now);
            }
        }
    }

    pub(super) fn is_claiming(&self, duty: &DutyId) -> bool {
        self.claiming
            .as_ref()
            .is_some_and(|claiming| claiming.wishes.iter().any(|wish| wish.duty == *duty))
    }

    /// Takes over the stored status: a late keep-alive may have written an older one.
    fn hear_ourselves(&mut self, members: &[Member]) {
        let Some(live) = self.live.as_mut().filter(|_| self.keeping.is_none()) else { return };
        let nonce = Some(live.session.nonce);
        if let Some(me) = members.iter().find(|member| member.nonce == nonce) {
            live.said = me.note.clone();
        }
    }
}

fn same_members(before: &[Member], now: &[Member]) -> bool {
    let same = |(a, b): (&Member, &Member)| {
        a.instance == b.instance && a.nonce == b.nonce && a.note == b.note && a.evicted == b.evicted
    };
    before.len() == now.len() && before.iter().zip(now).all(same)
}
