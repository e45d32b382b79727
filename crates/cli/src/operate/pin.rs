//! `tenure pin`.

use serde_json::json;
use tenure_core::roster::Pin;
use tenure_core::{InstanceId, Label};
use tenure_operate::find;
use tenure_operate::pause::Scope;
use tenure_operate::pin::{self, PinEntry, PinOptions, PinReport};

use super::{by_outcome, note_edit, scope};
use crate::args::{Global, name};
use crate::failure::Failure;
use crate::table::{or_dash, table};

#[derive(clap::Args)]
pub(crate) struct PinArgs {
    /// Duty as GROUP/ID; a GROUP alone lists its pins
    #[arg(value_name = "GROUP[/ID]")]
    duty: String,
    /// Instance as for `tenure drain`, or a place as listed: zone:LABEL or name:LABEL
    #[arg(conflicts_with_all = ["name", "zone", "remove"])]
    instance: Option<String>,
    /// Pin to any member of this name
    #[arg(long, value_name = "LABEL", conflicts_with_all = ["zone", "remove"])]
    name: Option<String>,
    /// Pin to any member in this zone
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
    pub(crate) async fn run(&self, global: &Global) -> Result<String, Failure> {
        let to = match (&self.instance, &self.name, &self.zone) {
            (Some(place), _, _) => Some(read_pin(place)?),
            (_, Some(label), _) => Some(Pin::Name(name(label, Label::unescape)?)),
            (_, _, Some(label)) => Some(Pin::Zone(name(label, Label::unescape)?)),
            _ => None,
        };
        let usage = |what: &str| Err(Failure::Usage(what.to_owned()));
        match scope(&self.duty)? {
            Scope::Group(_) if to.is_some() || self.remove => {
                usage("give a duty as GROUP/ID; a group cannot be pinned")
            }
            Scope::Group(_) if self.replace => usage("--replace needs a duty: give it as GROUP/ID"),
            Scope::Group(group) => {
                let pins = pin::list(&*global.open().await?, &group).await?;
                let row = |pin: &PinEntry| {
                    let holder = or_dash(pin.holder.as_ref());
                    [pin.duty.to_string(), pin.to.to_string(), holder]
                };
                let heads = ["DUTY", "PINNED_TO", "HOLDER"];
                let value = json!({ "group": group.to_string(), "pins": pins });
                Ok(global.show(&value, || table(heads, pins.iter().map(row))))
            }
            Scope::Duty(_) if to.is_none() && !self.remove => {
                usage("give an INSTANCE, --name, --zone or --remove")
            }
            Scope::Duty(duty) => {
                let (replace, dry_run) = (self.replace, self.dry_run);
                let store = global.open().await?;
                let to = match to {
                    Some(Pin::Instance(word)) => {
                        let found = find::instance(&*store, &duty.group, &word).await?;
                        Some(Pin::Instance(found))
                    }
                    to => to,
                };
                let options = PinOptions { duty, to, replace, dry_run };
                let pinned = pin::pin(&*store, options).await?;
                Ok(global.show(&pinned, || {
                    note_edit(&pinned.edit);
                    sentences(&pinned)
                }))
            }
        }
    }
}

fn sentences(pinned: &PinReport) -> String {
    let PinReport { duty, edit, .. } = pinned;
    let Some(pin) = &pinned.to else {
        let after = "is no longer pinned; it stays with its holder";
        let what = by_outcome(edit, "is not pinned", after, "would no longer be pinned");
        return format!("{duty} {what}\n");
    };
    let is = by_outcome(edit, "was already", "is", "would be");
    let text = format!("{duty} {is} pinned to {pin}\n");
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
