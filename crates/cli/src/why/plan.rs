//! `tenure plan`: what would move, without moving.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value, json};
use tenure_core::engine::GroupSnapshot;
use tenure_core::roster::{PlacementReason, RosterMember};
use tenure_core::{DutyId, DutyKey, GroupName, InstanceId, StoreError};
use tenure_duty::process;
use tenure_store::{IfAbsent, StoreUrl};

use super::changes::Changes;
use super::duties;
use super::file::{Basis, PlanFile};
use super::state::{State, TARGETS_NOTE};
use crate::args::{group_name, path};
use crate::failure::Failure;
use crate::ls::or_nothing;
use crate::output::{document, to_stderr};
use crate::table::{Align, Column, lay_out};

/// What a plan with newcomers cannot know.
pub(super) const JOIN_NOTE: &str = "a newcomer has to start itself, and then has an id of its own: \
    how many duties it gets is as planned, which ones depends on its id";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The group, as it is printed
    group: String,
    /// A member that would come
    #[arg(long, value_name = "NAME")]
    join: Vec<String>,
    /// A member that would hand over everything
    #[arg(long, value_name = "INSTANCE")]
    leave: Vec<String>,
    /// The share that a member would have beside the others
    #[arg(long, value_name = "INSTANCE=N")]
    weight: Vec<String>,
    /// Where a duty would have to be; it may also be given as GROUP/ID
    #[arg(long, value_name = "ID=INSTANCE")]
    pin: Vec<String>,
    /// Keep the plan in this file, for `tenure apply`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug)]
pub(crate) struct Task {
    group: GroupName,
    changes: Changes,
    out: Option<PathBuf>,
}

impl Task {
    pub(crate) fn new(args: &Args) -> Result<Self, Failure> {
        let group = group_name(&args.group)?;
        let changes = Changes::read(&group, &args.join, &args.leave, &args.weight, &args.pin)?;
        Ok(Self { group, changes, out: args.out.as_deref().map(path).transpose()? })
    }
}

pub(crate) async fn run(url: &StoreUrl, task: Task, json: bool) -> Result<String, Failure> {
    let store = url.open(IfAbsent::Refuse, process::entropy()).await?;
    let Task { group, changes, out } = task;
    let state = State::read(&*store, &group).await?;
    changes.check(&state)?;
    let planned = Planned::new(&state, &changes)?;
    if let Some(path) = &out {
        let moves = planned.moves_value();
        let (store, basis) = (url.place(), Basis::of(&state));
        PlanFile { store, group: group.clone(), changes: changes.clone(), basis, moves }
            .write(path)?;
    }
    let mut notes = Vec::new();
    if state.has_targets() {
        notes.push(TARGETS_NOTE);
    }
    if !changes.joins.is_empty() {
        notes.push(JOIN_NOTE);
    }
    if planned.foreign {
        notes.push("the group has foreign members: their rule counts, not weights or pins");
    }
    if json {
        let mut value = planned.value();
        value["group"] = group.to_string().into();
        value["changes"] = changes.value();
        value["out"] = json!(out.map(|path| path.display().to_string()));
        value["notes"] = json!(notes);
        return Ok(document(&value));
    }
    notes.iter().for_each(|note| to_stderr(&format!("note: {note}")));
    let changes: Vec<String> = changes.lines().iter().map(|line| format!("  {line}\n")).collect();
    let changes = if changes.is_empty() { "  nothing\n".to_owned() } else { changes.concat() };
    Ok(format!("group {group}, if this changed:\n{changes}\n{}", planned.text()))
}

/// What would become of a group.
pub(super) struct Planned {
    members: Vec<Count>,
    pub(super) moves: Vec<Move>,
    duties: usize,
    foreign: bool,
}

/// How many duties a member has and would have.
struct Count {
    instance: InstanceId,
    before: usize,
    after: usize,
}

/// A duty that would be elsewhere.
pub(super) struct Move {
    duty: DutyKey,
    from: Option<InstanceId>,
    to: Option<InstanceId>,
    /// PlacementReason it would not stay, and why it would go there.
    leaves: Option<PlacementReason>,
    comes: Option<PlacementReason>,
    /// It would move without the change, too.
    anyway: bool,
}

/// The duties of a picture and who should hold them.
fn owners(picture: &GroupSnapshot) -> impl Iterator<Item = (&DutyId, Option<&InstanceId>)> {
    let owner = |seat: &Option<u32>| seat.map(|seat| &picture.seats[seat as usize].instance);
    let duties = picture.charges.iter().map(|charge| &charge.duty);
    duties.zip(picture.plan.seats.iter().map(owner))
}

impl Planned {
    pub(super) fn new(state: &State, changes: &Changes) -> Result<Self, StoreError> {
        let after = changes.apply_to(state)?;
        let held = state.held();
        let (now, then) = (state.pictures(None), after.pictures(None));
        let unchanged: BTreeMap<_, _> = now.iter().flat_map(owners).collect();
        let planned: BTreeMap<_, _> = then.iter().flat_map(owners).collect();
        let mut counts: BTreeMap<&InstanceId, (usize, usize)> =
            after.members.iter().map(|member| (&member.instance, (0, 0))).collect();
        for (duty, instance) in &held {
            let count = counts.entry(instance).or_default();
            count.0 += 1;
            // What somebody holds who takes no part stays there.
            count.1 += usize::from(!planned.contains_key(duty) && !after.group.pauses(duty));
        }
        for instance in planned.values().flatten() {
            counts.entry(instance).or_default().1 += 1;
        }
        let mut moves = Vec::new();
        for picture in &then {
            let explainer = picture.explainer();
            let away = |(_, (duty, to)): &(usize, (&DutyId, _))| held.get(duty) != *to;
            for (at, (duty, to)) in owners(picture).enumerate().filter(away) {
                let (from, opinions) = (held.get(duty), explainer.explain(at));
                let why = |who: Option<&InstanceId>| {
                    let there = |seat: &RosterMember| Some(&seat.instance) == who;
                    picture.seats.iter().position(there).map(|n| opinions[n].why)
                };
                let anyway = unchanged.get(duty).is_some_and(|owner| *owner != from);
                let (leaves, comes) = (why(from), why(to));
                let duty = DutyKey { group: state.name.clone(), id: duty.clone() };
                let (from, to) = (from.cloned(), to.cloned());
                moves.push(Move { duty, from, to, leaves, comes, anyway });
            }
        }
        let count = |(instance, (before, after)): (&InstanceId, (usize, usize))| {
            let instance = instance.clone();
            Count { instance, before, after }
        };
        let members = counts.into_iter().map(count).collect();
        let foreign = then.iter().any(|picture| picture.foreign);
        Ok(Self { members, moves, duties: planned.len(), foreign })
    }

    fn text(&self) -> String {
        let row = |count: &Count| {
            let Count { instance, before, after } = count;
            let change = *after as i64 - *before as i64;
            [instance.to_string(), before.to_string(), after.to_string(), format!("{change:+}")]
        };
        let members = lay_out(&COUNTS, &self.members.iter().map(row).collect::<Vec<_>>());
        let moves = match self.moves.is_empty() {
            true => String::new(),
            false => {
                let rows: Vec<_> = self.moves.iter().map(Move::row).collect();
                format!("\n{}", lay_out(&MOVES, &rows))
            }
        };
        let moved = self.moves.iter().filter(|step| step.from.is_some() && step.to.is_some());
        let free = self.moves.iter().filter(|step| step.from.is_none()).count();
        let lost = self.moves.iter().filter(|step| step.to.is_none()).count();
        let total = format!(
            "{}: {} would move, {free} would be taken up, {lost} would find no member\n",
            duties(self.duties),
            moved.count(),
        );
        format!("{members}{moves}\n{total}")
    }

    /// What would move, as it is kept.
    pub(super) fn moves_value(&self) -> Value {
        self.moves.iter().map(Move::value).collect()
    }

    pub(super) fn value(&self) -> Value {
        let count = |count: &Count| {
            json!({
                "instance": count.instance.to_string(),
                "before": count.before,
                "after": count.after,
            })
        };
        json!({
            "members": self.members.iter().map(count).collect::<Vec<_>>(),
            "moves": self.moves_value(),
            "duties": self.duties,
            "foreign_rule": self.foreign,
        })
    }
}

const COUNTS: [Column; 4] = [
    Column("MEMBER", Align::Left),
    Column("BEFORE", Align::Right),
    Column("AFTER", Align::Right),
    Column("CHANGE", Align::Right),
];

const MOVES: [Column; 4] = [
    Column("DUTY", Align::Left),
    Column("FROM", Align::Left),
    Column("TO", Align::Left),
    Column("WHY", Align::Left),
];

impl Move {
    /// PlacementReason it moves, in a sentence or two.
    fn why(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.leaves.map(|why| format!("from: {}", why.sentence())));
        parts.extend(self.comes.map(|why| format!("to: {}", why.sentence())));
        parts.extend(self.to.is_none().then(|| "no member has room".to_owned()));
        parts.extend(self.anyway.then(|| "it would move without the change, too".to_owned()));
        parts.join("; ")
    }

    fn row(&self) -> [String; 4] {
        [
            self.duty.to_string(),
            or_nothing(self.from.as_ref()),
            or_nothing(self.to.as_ref()),
            self.why(),
        ]
    }

    fn value(&self) -> Value {
        json!({
            "duty": self.duty.to_string(),
            "from": self.from.as_ref().map(ToString::to_string),
            "to": self.to.as_ref().map(ToString::to_string),
            "leaves": self.leaves.map(PlacementReason::as_str),
            "comes": self.comes.map(PlacementReason::as_str),
            "anyway": self.anyway,
            "why": self.why(),
        })
    }
}
