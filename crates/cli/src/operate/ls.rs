//! `tenure ls`.

use serde_json::json;
use tenure_operate::Directive;
use tenure_operate::list::{DutyListing, GroupListing, MemberListing, list};

use crate::args::{Global, TrustArgs, group_name};
use crate::failure::Failure;
use crate::output::{shown, to_stderr};
use crate::table::{or_dash, table};

pub(crate) async fn run(
    only: Option<&str>,
    trust: &TrustArgs,
    global: &Global,
) -> Result<String, Failure> {
    let trusted = trust.trusted()?;
    let only = only.map(group_name).transpose()?;
    let url = global.url()?;
    let groups = list(&*global.open_bare().await?, only, trusted.as_ref()).await?;
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
        let evicted = if member.evicted { "yes" } else { "no" }.to_owned();
        let (instance, remaining) = (member.instance.to_string(), member.remaining_ms.to_string());
        [instance, remaining, evicted, shown(&member.note)]
    };
    let heads = ["MEMBER", ">REMAINING_MS", "EVICTED", "NOTE"];
    let identities = identities(members);
    let members = table(heads, members.iter().map(member));
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
    format!("group {group}\n\n{duties}\n{members}{identities}{in_force}")
}

/// Lists the identities of members, if they were verified.
fn identities(members: &[MemberListing]) -> String {
    let row = |member: &MemberListing| {
        let untrusted = member.untrusted.map(|why| format!("untrusted: {why}"));
        let identity = member.identity.clone().or(untrusted)?;
        Some([member.instance.to_string(), identity])
    };
    let rows: Vec<_> = members.iter().filter_map(row).collect();
    match rows.is_empty() {
        true => String::new(),
        false => format!("\n{}", table(["MEMBER", "IDENTITY"], rows)),
    }
}
