//! `tenure ls`.

use serde_json::json;
use tenure_operate::Directive;
use tenure_operate::list::{DutyListing, GroupListing, MemberListing, list};

use crate::args::{Global, group_name};
use crate::failure::Failure;
use crate::output::{shown, to_stderr};
use crate::table::{or_dash, table};

pub(crate) async fn run(only: Option<&str>, global: &Global) -> Result<String, Failure> {
    let only = only.map(group_name).transpose()?;
    let url = global.url()?;
    let groups = list(&*global.open().await?, only).await?;
    Ok(global.show(&json!({ "groups": groups }), || {
        if groups.is_empty() {
            to_stderr(&format!("{} has no groups yet", shown(&url.to_string())));
        }
        groups.iter().map(text).collect::<Vec<_>>().join("\n")
    }))
}

fn text(listing: &GroupListing) -> String {
    let GroupListing { group, duties, members, in_force, .. } = listing;
    if duties.is_empty() && members.is_empty() {
        to_stderr(&format!("group {group} has no duties and no members"));
    }
    let duty = |duty: &DutyListing| {
        let (holder, epoch) = (or_dash(duty.holder.as_ref()), or_dash(duty.epoch));
        [duty.duty.to_string(), holder, epoch, or_dash(duty.remaining_ms)]
    };
    let duties = table(["DUTY", "HOLDER", ">EPOCH", ">REMAINING_MS"], duties.iter().map(duty));
    let member = |member: &MemberListing| {
        let (instance, remaining) = (member.instance.to_string(), member.remaining_ms.to_string());
        [instance, or_dash(member.name.as_ref()), remaining, state(member)]
    };
    let members = table(["MEMBER", "NAME", ">REMAINING_MS", "STATE"], members.iter().map(member));
    let directive = |Directive { what, on, how }: &Directive| {
        [(*what).to_owned(), on.clone(), or_dash(how.as_ref())]
    };
    let in_force = match in_force {
        None => {
            to_stderr(&format!("the document of group {group} cannot be read (ST014)"));
            String::new()
        }
        Some(all) if all.is_empty() => String::new(),
        Some(all) => format!("\n{}", table(["IN_FORCE", "ON", "HOW"], all.iter().map(directive))),
    };
    format!("group {group}\n\n{duties}\n{members}{in_force}")
}

/// Describes what is special about a member: its state, and what it was started with.
fn state(member: &MemberListing) -> String {
    let MemberListing { weight, zone, revision, .. } = member;
    let mut words: Vec<String> = member.state.iter().map(|word| (*word).to_owned()).collect();
    words.extend(weight.filter(|weight| *weight != 1).map(|weight| format!("weight {weight}")));
    words.extend(zone.as_ref().map(|zone| format!("zone {zone}")));
    words.extend(revision.as_ref().map(|revision| format!("revision {revision}")));
    or_dash(Some(words.join(", ")).filter(|text| !text.is_empty()))
}
