//! `tenure pin`.

use tenure_core::roster::Pin;
use tenure_core::{GroupName, InstanceId, Label, Store};
use tenure_operate::pause::Scope;
use tenure_operate::pin::{self, PinEntry, PinOptions, PinReport};

use super::{GroupOperation, by_outcome, note_edit, scope};
use crate::args::name;
use crate::failure::Failure;
use crate::output::report;
use crate::table::{or_dash, table};

#[derive(clap::Args)]
pub(crate) struct PinArgs {
    /// Duty as GROUP/ID; a GROUP alone lists its pins
    #[arg(value_name = "GROUP[/ID]")]
    duty: String,
    /// Instance id, or a place as listed: zone:LABEL or name:LABEL
    #[arg(conflicts_with_all = ["name", "zone", "remove"])]
    instance: Option<String>,
    /// Pin to any member that was started with this --name
    #[arg(long, value_name = "LABEL", conflicts_with_all = ["zone", "remove"])]
    name: Option<String>,
    /// Pin to any member that was started with this --zone
    #[arg(long, value_name = "LABEL", conflicts_with = "remove")]
    zone: Option<String>,
    /// Remove the pin
    #[arg(long, conflicts_with = "replace")]
    remove: bool,
    /// Replace an existing pin
    #[arg(long)]
    replace: bool,
    /// Print what would happen and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Reads an instance, or a pin as it is printed.
fn read_pin(text: &str) -> Result<Pin, Failure> {
    match text.split_once(':') {
        Some(("instance", who)) => name(who, InstanceId::unescape).map(Pin::Instance),
        Some(("name", label)) => name(label, Label::unescape).map(Pin::Name),
        Some(("zone", label)) => name(label, Label::unescape).map(Pin::Zone),
        _ => name(text, InstanceId::unescape).map(Pin::Instance),
    }
}

impl PinArgs {
    pub(crate) fn operation(&self) -> Result<GroupOperation, Failure> {
        let to = match (&self.instance, &self.name, &self.zone) {
            (Some(place), _, _) => Some(read_pin(place)?),
            (_, Some(label), _) => Some(Pin::Name(name(label, Label::unescape)?)),
            (_, _, Some(label)) => Some(Pin::Zone(name(label, Label::unescape)?)),
            _ => None,
        };
        let usage = |what: &str| Err(Failure::Usage(what.to_owned()));
        match scope(&self.duty)? {
            Scope::Group(_) if to.is_some() || self.remove => {
                usage("a duty is pinned, not a group: give it as GROUP/ID")
            }
            Scope::Group(_) if self.replace => usage("a duty is pinned: give it as GROUP/ID"),
            Scope::Group(group) => Ok(GroupOperation::ListPins(group)),
            Scope::Duty(_) if to.is_none() && !self.remove => {
                usage("give an INSTANCE, --name, --zone or --remove")
            }
            Scope::Duty(duty) => {
                let (replace, dry_run) = (self.replace, self.dry_run);
                Ok(GroupOperation::Pin(PinOptions { duty, to, replace, dry_run }))
            }
        }
    }
}

pub(super) async fn list(
    store: &dyn Store,
    group: &GroupName,
    json: bool,
) -> Result<String, Failure> {
    let list = pin::list(store, group).await?;
    let row =
        |pin: &PinEntry| [pin.duty.to_string(), pin.to.to_string(), or_dash(pin.holder.as_ref())];
    Ok(match json {
        true => report(&list),
        false => table(["DUTY", "PINNED_TO", "HOLDER"], list.pins.iter().map(row)),
    })
}

pub(super) async fn run(
    store: &dyn Store,
    options: PinOptions,
    json: bool,
) -> Result<String, Failure> {
    let pinned = pin::pin(store, options).await?;
    if json {
        return Ok(report(&pinned));
    }
    note_edit(&pinned.edit);
    Ok(sentences(&pinned))
}

fn sentences(pinned: &PinReport) -> String {
    let PinReport { duty, edit, .. } = pinned;
    let Some(pin) = &pinned.to else {
        let after = "is no longer pinned; it stays with its holder";
        let what = by_outcome(edit, "is not pinned", after, "would no longer be pinned");
        return format!("{duty} {what}\n");
    };
    let is = by_outcome(edit, "was", "is", "would be");
    let before = if edit.changed { "" } else { " before" };
    let text = format!("{duty} {is} pinned to {pin}{before}\n");
    let next = match &pinned.holder {
        _ if !pinned.reachable => {
            "no member there takes duties now: until then any member may hold it\n".to_owned()
        }
        Some(holder) if !pinned.in_place => {
            let hands = if edit.dry_run { "would hand" } else { "hands" };
            format!("{holder} {hands} it over\n")
        }
        _ => String::new(),
    };
    text + &next
}
