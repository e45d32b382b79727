//! `tenure ls`.

use serde_json::json;
use tenure_core::{GroupName, Store};
use tenure_operate::Directive;
use tenure_operate::list::{DutyListing, GroupListing, MemberListing, list};
use tenure_store::StoreUrl;

use crate::failure::Failure;
use crate::output::{document, shown, to_stderr};
use crate::table::{or_dash, table};

pub(super) async fn run(
    store: &dyn Store,
    url: &StoreUrl,
    only: Option<GroupName>,
    json: bool,
) -> Result<String, Failure> {
    let groups = list(store, only).await?;
    if json {
        return Ok(document(&json!({ "groups": groups })));
    }
    if groups.is_empty() {
        to_stderr(&format!("{} has no groups yet", shown(&url.to_string())));
    }
    Ok(groups.iter().map(text).collect::<Vec<_>>().join("\n"))
}

fn text(listing: &GroupListing) -> String {
    let GroupListing { group, duties, members, in_force, .. } = listing;
    if duties.is_empty() && members.is_empty() {
        to_stderr(&format!("group {group} has no duties and no members"));
    }
    let duties = table(["DUTY", "HOLDER", ">EPOCH", ">REMAINING_MS"], duties.iter().map(duty_row));
    let heads = ["MEMBER", ">REMAINING_MS", "EVICTED", "NOTE"];
    let members = table(heads, members.iter().map(member_row));
    let in_force = match in_force {
        None => {
            to_stderr(&format!("the document of group {group} cannot be read (ST014)"));
            String::new()
        }
        Some(all) if all.is_empty() => String::new(),
        Some(all) => {
            format!("\n{}", table(["IN_FORCE", "ON", "HOW"], all.iter().map(directive_row)))
        }
    };
    format!("group {group}\n\n{duties}\n{members}{in_force}")
}

fn duty_row(duty: &DutyListing) -> [String; 4] {
    [
        duty.duty.to_string(),
        or_dash(duty.holder.as_ref()),
        or_dash(duty.epoch),
        or_dash(duty.remaining_ms),
    ]
}

fn member_row(member: &MemberListing) -> [String; 4] {
    [
        member.instance.to_string(),
        member.remaining_ms.to_string(),
        if member.evicted { "yes" } else { "no" }.to_owned(),
        shown(&member.note),
    ]
}

fn directive_row(directive: &Directive) -> [String; 3] {
    let Directive { what, on, how } = directive;
    [(*what).to_owned(), on.clone(), or_dash(how.as_ref())]
}
