//! `tenure pin`: where duties have to be.

use serde_json::{Value, json};
use tenure_core::engine::GroupConfig;
use tenure_core::roster::Pin;
use tenure_core::{DutyId, DutyKey, GroupName, InstanceId, Label, Store};

use super::sight::{Edited, Sight, edit};
use super::{Name, conflict};
use crate::args::name;
use crate::failure::Failure;
use crate::group::{check_room, is_at};
use crate::ls::or_nothing;
use crate::output::document;
use crate::table::{Align, Column, lay_out};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The duty as GROUP/ID; a GROUP alone lists its pins
    #[arg(value_name = "GROUP[/ID]")]
    duty: String,
    /// The instance that is to do it, as it is printed; or a place as pins are listed: zone:LABEL
    #[arg(conflicts_with_all = ["name", "zone", "remove"])]
    instance: Option<String>,
    /// A member with this name is to do it, as it is printed
    #[arg(long, value_name = "LABEL", conflicts_with_all = ["zone", "remove"])]
    name: Option<String>,
    /// A member in this zone is to do it, as it is printed
    #[arg(long, value_name = "LABEL", conflicts_with = "remove")]
    zone: Option<String>,
    /// Take the pin back
    #[arg(long, conflicts_with = "replace")]
    remove: bool,
    /// Put it in the place of another pin
    #[arg(long)]
    replace: bool,
    /// Say what would happen and change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug)]
pub(crate) enum Task {
    List(GroupName),
    Change(Change),
}

/// A pin to set, or to take back.
#[derive(Debug)]
pub(crate) struct Change {
    duty: DutyKey,
    pin: Option<Pin>,
    replace: bool,
    dry_run: bool,
}

/// An instance, or a place as pins are printed.
fn read_place(text: &str) -> Result<Pin, Failure> {
    match text.split_once(':') {
        Some(("instance", who)) => name(who, InstanceId::unescape).map(Pin::Instance),
        Some(("name", label)) => name(label, Label::unescape).map(Pin::Name),
        Some(("zone", label)) => name(label, Label::unescape).map(Pin::Zone),
        _ => name(text, InstanceId::unescape).map(Pin::Instance),
    }
}

impl Task {
    pub(crate) fn new(args: &Args) -> Result<Self, Failure> {
        let pin = match (&args.instance, &args.name, &args.zone) {
            (Some(place), _, _) => Some(read_place(place)?),
            (_, Some(label), _) => Some(Pin::Name(name(label, Label::unescape)?)),
            (_, _, Some(label)) => Some(Pin::Zone(name(label, Label::unescape)?)),
            _ => None,
        };
        let usage = |what: &str| Err(Failure::Usage(what.to_owned()));
        match Name::read(&args.duty)? {
            Name::Group(_) if pin.is_some() || args.remove => {
                usage("a duty is pinned, not a group: give it as GROUP/ID")
            }
            Name::Group(_) if args.replace => usage("a duty is pinned: give it as GROUP/ID"),
            Name::Group(group) => Ok(Self::List(group)),
            Name::Duty(_) if pin.is_none() && !args.remove => {
                usage("where to? give an INSTANCE, --name or --zone, or --remove")
            }
            Name::Duty(duty) => {
                let (replace, dry_run) = (args.replace, args.dry_run);
                Ok(Self::Change(Change { duty, pin, replace, dry_run }))
            }
        }
    }
}

pub(crate) async fn run(store: &dyn Store, task: Task, json: bool) -> Result<String, Failure> {
    let task = match task {
        Task::List(group) => return Ok(list(&Sight::read(store, &group).await?, json)),
        Task::Change(change) => change,
    };
    let change = |sight: &Sight, group: &mut GroupConfig| {
        sight.check_duty(&task.duty)?;
        match &task.pin {
            None => drop(group.pins.remove(&task.duty.id)),
            Some(pin) => {
                task.check_other(group)?;
                group.pins.insert(task.duty.id.clone(), pin.clone());
                check_place(&task.duty.id, pin, sight, group)?;
            }
        }
        Ok(())
    };
    let edited = edit(store, &task.duty.group, task.dry_run, change).await?;
    if json {
        return Ok(document(&task.value(&edited)));
    }
    edited.tell(task.dry_run);
    Ok(task.sentences(&edited))
}

const COLUMNS: [Column; 3] =
    [Column("DUTY", Align::Left), Column("PINNED_TO", Align::Left), Column("HOLDER", Align::Left)];

/// The pins of a group.
fn list(sight: &Sight, json: bool) -> String {
    let holder = |id: &DutyId| sight.holder(id).map(|holder| holder.instance.to_string());
    let pins = sight.group.pins.iter();
    let pins = pins.map(|(id, pin)| (format!("{}/{id}", sight.name), pin.to_string(), holder(id)));
    if !json {
        let rows: Vec<_> = pins.map(|(duty, to, holder)| [duty, to, or_nothing(holder)]).collect();
        return lay_out(&COLUMNS, &rows);
    }
    let value = |(duty, to, holder)| json!({ "duty": duty, "to": to, "holder": holder });
    let pins: Vec<Value> = pins.map(value).collect();
    document(&json!({ "group": sight.name.to_string(), "pins": pins }))
}

impl Change {
    /// A pin to somewhere else is replaced only by who says so.
    fn check_other(&self, group: &GroupConfig) -> Result<(), Failure> {
        match group.pins.get(&self.duty.id) {
            Some(other) if Some(other) != self.pin.as_ref() && !self.replace => Err(conflict(
                format!("{} is pinned to {}; --replace replaces that", self.duty, other),
            )),
            _ => Ok(()),
        }
    }

    fn value(&self, edited: &Edited) -> Value {
        let before = edited.before.group.pins.get(&self.duty.id);
        let holder = edited.before.holder(&self.duty.id);
        let mut value = edited.value(self.dry_run);
        value["duty"] = self.duty.to_string().into();
        value["to"] = self.pin.as_ref().map(Pin::to_string).into();
        value["before"] = before.map(Pin::to_string).into();
        value["holder"] = holder.map(|holder| holder.instance.to_string()).into();
        value
    }

    fn sentences(&self, edited: &Edited) -> String {
        let Self { duty, pin, dry_run, .. } = self;
        let Some(pin) = pin else {
            return match (edited.changed, dry_run) {
                (false, _) => format!("{duty} is not pinned\n"),
                (true, false) => format!("{duty} is not pinned any more; it stays where it is\n"),
                (true, true) => format!("{duty} would not be pinned any more\n"),
            };
        };
        let place = pin.to_string();
        let mut text = match (edited.changed, dry_run) {
            (false, _) => format!("{duty} was pinned to {place} before\n"),
            (true, false) => format!("{duty} is pinned to {place}\n"),
            (true, true) => format!("{duty} would be pinned to {place}\n"),
        };
        let takers = edited.before.takers(&edited.group);
        let there = |who: &InstanceId| {
            takers.iter().any(|taker| taker.seat.instance == *who && is_at(&taker.seat, pin))
        };
        if !takers.iter().any(|taker| is_at(&taker.seat, pin) && taker.takes()) {
            text.push_str("nobody there takes duties now: until then anybody may do it\n");
        } else if let Some(holder) = edited.before.holder(&duty.id).map(|now| &now.instance)
            && !there(holder)
        {
            let hands = if *dry_run { "would hand" } else { "hands" };
            text.push_str(&format!("{holder} {hands} it over\n"));
        }
        text
    }
}

/// Refuses a pin that cannot be followed. A name or a zone may be waited for, an instance not.
fn check_place(
    duty: &DutyId,
    pin: &Pin,
    sight: &Sight,
    group: &GroupConfig,
) -> Result<(), Failure> {
    let takers = sight.takers(group);
    if let Pin::Instance(instance) = pin {
        let member = sight.member(instance)?;
        let taker = takers.iter().find(|taker| taker.seat.instance == *instance);
        let why = match taker {
            _ if member.evicted => Some("is evicted"),
            _ if group.drained.contains_key(instance) => Some("is drained"),
            _ if group.cordoned.contains(instance) => Some("is cordoned"),
            _ if member.nonce.is_none() => Some("only shares the keys"),
            None => Some("takes no duties"),
            Some(taker) if taker.seat.weight == 0 => Some("has weight 0"),
            Some(taker) if !taker.takes() => Some("takes no duties now"),
            Some(_) => None,
        };
        if let Some(why) = why {
            return Err(conflict(format!("{instance} {why}")));
        }
        if let Some(only) = taker.and_then(|taker| taker.only.as_ref()).filter(|id| *id != duty) {
            let what = format!("{instance} is there for {}/{only} only", sight.name);
            return Err(conflict(what));
        }
    }
    check_room(pin, &takers, group)?;
    Ok(())
}
