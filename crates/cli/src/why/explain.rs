//! `tenure explain`: who holds a duty, who should, and why; now or at a time.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_core::engine::GroupSnapshot;
use tenure_core::roster::{PlacementReport, RosterMember};
use tenure_core::store::{AuditEntry, AuditKind, Member};
use tenure_core::{Code, DutyKey, Epoch};
use tenure_duty::process;
use tenure_store::{IfAbsent, StoreUrl};

use super::state::{self, State, TARGETS_NOTE};
use super::trail::{self, Trail};
use super::{past, refused};
use crate::args::{duration, name};
use crate::failure::Failure;
use crate::ls::{millis, or_nothing};
use crate::output::{document, to_stderr};
use crate::table::{Align, Column, lay_out};
use crate::{time, written};

/// How many transitions people are shown.
const SHOWN: usize = 20;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The duty, as it is printed: GROUP/ID
    duty: String,
    /// As it was then: 2026-02-15T10:00:00Z, or 10m for ten minutes ago
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Task {
    duty: DutyKey,
    at: Option<At>,
}

#[derive(Debug)]
enum At {
    Time(jiff::Timestamp),
    Ago(Duration),
}

impl Task {
    pub(crate) fn new(args: &Args) -> Result<Self, Failure> {
        let at = args.at.as_deref().map(At::read).transpose()?;
        if !args.duty.contains('/') {
            let what = "a duty is explained, not a group: give it as GROUP/ID";
            return Err(Failure::Usage(what.to_owned()));
        }
        Ok(Self { duty: name(&args.duty, str::parse)?, at })
    }
}

impl At {
    fn read(text: &str) -> Result<Self, Failure> {
        if let Ok(ago) = duration(text) {
            return Ok(Self::Ago(ago));
        }
        text.parse().map(Self::Time).map_err(|_| {
            let what = "--at is a time as in 2026-02-15T10:00:00Z, or how long ago as in 10m";
            Failure::Usage(what.to_owned())
        })
    }

    /// In milliseconds since 1970, by the store's clock where it has one; what the trail does not
    /// reach is refused.
    fn settle(&self, trail: &Trail, now: u64) -> Result<u64, Failure> {
        let Some(begins) = trail.begins() else {
            let what = "nothing is recorded of this group yet";
            return Err(refused(Code::NoRecord, what));
        };
        self.within(begins, now).map_err(|what| refused(Code::NoRecord, what))
    }

    /// The time, if it is between these two; otherwise what is wrong with it.
    fn within(&self, begins: u64, now: u64) -> Result<u64, String> {
        let (at, said) = match self {
            Self::Ago(ago) => (now.checked_sub(millis(*ago)), format!("{ago:?} ago")),
            Self::Time(time) => (u64::try_from(time.as_millisecond()).ok(), format!("{time}")),
        };
        match at {
            Some(at) if at > now => {
                Err(format!("{said} has not come yet: now is {}", time::shown(now)))
            }
            Some(at) if at >= begins => Ok(at),
            // Also what is before 1970.
            _ => Err(format!("{said} is before it begins, at {}", time::shown(begins))),
        }
    }
}

pub(crate) async fn run(url: &StoreUrl, task: Task, json: bool) -> Result<String, Failure> {
    let store = url.open(IfAbsent::Refuse, process::entropy()).await?;
    let Task { duty, at } = task;
    let state = State::read(&*store, &duty.group).await?;
    let trail = Trail::read(&*store, &duty.group).await?;
    if !state.knows(&duty.id) && trail.of_duty(&duty.id).is_empty() {
        let what = format!("the duty {duty} was never granted, pinned or paused");
        return Err(refused(Code::NotThere, what));
    }
    let mut notes = Vec::new();
    if state.has_targets() {
        notes.push(TARGETS_NOTE.to_owned());
    }
    let (state, certain, at) = match at {
        None => (state, true, None),
        Some(at) => {
            let now = written::now(&*store).await?;
            let at = at.settle(&trail, now)?;
            let past = past::at(&trail, &state, &duty.id, past::Times { at, now })?;
            notes.extend(past.notes);
            (past.state, past.certain, Some(at))
        }
    };
    let view = View { certain, ..View::new(duty, state, &trail, at, notes) };
    if json {
        return Ok(document(&view.value()));
    }
    view.notes.iter().for_each(|note| to_stderr(&format!("note: {note}")));
    Ok(view.text())
}

/// A duty and all that is known of why it is where it is.
struct View<'a> {
    duty: DutyKey,
    at: Option<u64>,
    state: State,
    picture: GroupSnapshot,
    opinions: Option<Vec<PlacementReport>>,
    transitions: Vec<&'a AuditEntry>,
    notes: Vec<String>,
    /// What operators had put in force is known.
    certain: bool,
}

impl<'a> View<'a> {
    fn new(
        duty: DutyKey,
        state: State,
        trail: &'a Trail,
        at: Option<u64>,
        notes: Vec<String>,
    ) -> Self {
        let picture = state.picture_of(&duty.id);
        let opinions = picture.explain(&duty.id);
        let mut transitions = trail.of_duty(&duty.id);
        transitions.retain(|entry| at.is_none_or(|at| entry.unix_ms <= at));
        Self { duty, at, state, picture, opinions, transitions, notes, certain: true }
    }

    /// When the hold of now began; `None` when the trail does not reach that far.
    fn since(&self) -> Option<u64> {
        let epoch = self.state.holder(&self.duty.id)?.epoch?;
        let is_it = |e: &&&AuditEntry| e.kind == AuditKind::Granted && e.epoch == Some(epoch);
        self.transitions.iter().rev().find(is_it).map(|entry| entry.unix_ms)
    }

    /// Who should hold it.
    fn owner(&self) -> Option<&RosterMember> {
        self.picture.owner(&self.duty.id)
    }

    /// Why nobody plans it.
    fn unplanned(&self) -> Option<&'static str> {
        let (group, id) = (&self.state.group, &self.duty.id);
        match &self.opinions {
            Some(_) => None,
            None if group.all_paused => Some("the whole group is paused"),
            None if group.paused.contains(id) => Some("it is paused"),
            None if !self.state.known().contains(id) => Some("it is no duty of the group now"),
            None => Some("its holder takes no part in the roster"),
        }
    }

    /// What operators have said of the duty and of the members.
    fn facts(&self) -> Vec<String> {
        let (group, id) = (&self.state.group, &self.duty.id);
        let mut facts = Vec::new();
        facts.extend(group.pins.get(id).map(|pin| format!("pinned to {pin}")));
        facts.extend(group.all_paused.then(|| "the whole group is paused".to_owned()));
        facts.extend(group.paused.contains(id).then(|| "paused".to_owned()));
        let drained = group.drained.iter();
        facts.extend(drained.map(|(who, how)| format!("{who} is drained ({})", how.as_str())));
        facts.extend(group.cordoned.iter().map(|who| format!("{who} is cordoned")));
        let weights = group.weights.iter();
        facts.extend(weights.map(|(who, weight)| format!("{who} was given weight {weight}")));
        facts
    }

    /// A member's seat, and what speaks for and against it.
    fn line(&self, member: &Member) -> (Option<RosterMember>, Option<PlacementReport>) {
        let seats = &self.picture.seats;
        let found = seats.binary_search_by(|seat| seat.instance.cmp(&member.instance)).ok();
        let opinion = found.and_then(|n| self.opinions.as_ref()?.get(n).copied());
        (state::seat(member, &self.state.group), opinion)
    }

    /// One sentence about a member.
    fn sentence(&self, member: &Member) -> &'static str {
        match (self.line(member), self.unplanned()) {
            ((_, Some(opinion)), _) => opinion.why.sentence(),
            (_, Some(why)) => why,
            ((None, _), _) => "takes no part: its note was not written by an engine",
            ((Some(_), None), None) => "is there for another duty only",
        }
    }
}

const COLUMNS: [Column; 10] = [
    Column("MEMBER", Align::Left),
    Column("CHOSEN", Align::Left),
    Column("SCORE", Align::Left),
    Column("SHARE", Align::Right),
    Column("GIVEN", Align::Right),
    Column("WEIGHT", Align::Right),
    Column("HOLDS", Align::Left),
    Column("PIN", Align::Left),
    Column("STATE", Align::Left),
    Column("WHY", Align::Left),
];

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

impl View<'_> {
    fn text(&self) -> String {
        let mut text = format!("duty       {}\n", self.duty);
        let mut line = |head: &str, what: String| text.push_str(&format!("{head:<11}{what}\n"));
        if let Some(at) = self.at {
            line("at", time::shown(at));
        }
        let holder = self.state.holder(&self.duty.id);
        let now = holder.and_then(|holder| holder.holder.as_ref());
        line("holder", or_nothing(now.map(|now| &now.instance)));
        line("epoch", or_nothing(holder.and_then(|holder| holder.epoch)));
        if now.is_some() {
            let since = self.since().map(time::shown);
            line("since", since.unwrap_or_else(|| "before the audit trail begins".to_owned()));
        }
        match (self.unplanned(), self.owner()) {
            (Some(why), _) => line("should be", format!("with nobody: {why}")),
            (None, Some(seat)) => line("should be", format!("with {}", seat.instance)),
            (None, None) => line("should be", "with nobody: no member has room".to_owned()),
        }
        let head = if self.certain { "in force" } else { "perhaps" };
        self.facts().into_iter().for_each(|fact| line(head, fact));
        let rows: Vec<_> = self.state.members.iter().map(|member| self.row(member)).collect();
        let skipped = self.transitions.len().saturating_sub(SHOWN);
        let earlier = match skipped {
            0 => String::new(),
            skipped => format!("({skipped} earlier ones are shown with --json)\n"),
        };
        let transitions = trail::for_people(&self.transitions[skipped..]);
        format!("{text}\n{}\n{transitions}{earlier}", lay_out(&COLUMNS, &rows))
    }

    fn row(&self, member: &Member) -> [String; 10] {
        let (seat, opinion) = self.line(member);
        let standing = state::standing(member, &self.state.group).join(",");
        [
            member.instance.to_string(),
            or_nothing(opinion.map(|o| yes(o.why.is_yes()))),
            or_nothing(opinion.map(|o| format!("{:016x}", o.score))),
            or_nothing(opinion.map(|o| o.share)),
            or_nothing(opinion.map(|o| o.given)),
            or_nothing(seat.map(|seat| seat.weight)),
            or_nothing(opinion.map(|o| yes(o.holds))),
            or_nothing(opinion.and_then(|o| o.pin).map(yes)),
            or_nothing(Some(standing).filter(|words| !words.is_empty())),
            self.sentence(member).to_owned(),
        ]
    }

    fn member(&self, member: &Member) -> Value {
        let (seat, opinion) = self.line(member);
        let label = |label: Option<&tenure_core::Label>| label.map(ToString::to_string);
        json!({
            "instance": member.instance.to_string(),
            "chosen": opinion.map(|o| o.why.is_yes()),
            "score": opinion.map(|o| format!("{:016x}", o.score)),
            "share": opinion.map(|o| o.share),
            "given": opinion.map(|o| o.given),
            "holds": opinion.map(|o| o.holds),
            "pin": opinion.and_then(|o| o.pin),
            "weight": seat.as_ref().map(|seat| seat.weight),
            "room": seat.as_ref().map(|seat| seat.room),
            "takes": seat.as_ref().map(|seat| seat.takes),
            "keeps": seat.as_ref().map(|seat| seat.keeps),
            "zone": label(seat.as_ref().and_then(|seat| seat.zone.as_ref())),
            "name": label(seat.as_ref().and_then(|seat| seat.name.as_ref())),
            "state": state::standing(member, &self.state.group),
            "why": opinion.map(|o| o.why.as_str()),
            "sentence": self.sentence(member),
        })
    }

    fn value(&self) -> Value {
        let (group, id) = (&self.state.group, &self.duty.id);
        let holder = self.state.holder(id);
        let now = holder.and_then(|holder| holder.holder.as_ref());
        json!({
            "duty": self.duty.to_string(),
            "at_unix_ms": self.at,
            "holder": now.map(|now| now.instance.to_string()),
            "epoch": holder.and_then(|holder| holder.epoch).map(Epoch::get),
            "since_unix_ms": now.and(self.since()),
            "remaining_ms": now.filter(|_| self.at.is_none()).map(|now| millis(now.remaining)),
            "should_be": self.owner().map(|seat| seat.instance.to_string()),
            "unplanned": self.unplanned(),
            "paused": group.pauses(id),
            "pin": group.pins.get(id).map(ToString::to_string),
            "in_force": self.facts(),
            "in_force_known": self.certain,
            "foreign_rule": self.picture.foreign,
            "members": self.state.members.iter().map(|m| self.member(m)).collect::<Vec<_>>(),
            "transitions": self.transitions.iter().map(|e| trail::value(e)).collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_one_of_the_clock_or_how_long_ago() {
        assert!(matches!(At::read("10m"), Ok(At::Ago(ago)) if ago == Duration::from_secs(600)));
        let within = |text: &str| At::read(text).unwrap().within(1_000, 1_771_149_700_000);
        assert_eq!(within("2026-02-15T10:00:00.123Z"), Ok(1_771_149_600_123));
        assert_eq!(within("2026-02-15T12:00:00.123+02:00"), Ok(1_771_149_600_123));
        for before in ["1970-01-01T00:00:00.999Z", "1960-01-01T00:00:00Z", "876000h"] {
            let what = within(before).unwrap_err();
            assert!(what.ends_with("is before it begins, at 1970-01-01T00:00:01.000Z"), "{what}");
        }
        let what = within("2026-02-15T11:00:00Z").unwrap_err();
        assert!(what.contains("has not come yet: now is 2026-02-15T10:01:40.000Z"), "{what}");
        for bad in ["", "yesterday", "2026-02-15", "-10m", "now"] {
            assert!(matches!(At::read(bad), Err(Failure::Usage(_))), "{bad}");
        }
    }
}
