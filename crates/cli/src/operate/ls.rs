//! `tenure ls`.

use serde_json::json;
use tenure_operate::list::{DutyListing, GroupListing, MemberListing, list};
use tenure_operate::{Directive, timestamp};
use tenure_wire::poll_report::PollReport;

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
    let duties = duty_table(duties);
    let member = |member: &MemberListing| {
        let (instance, remaining) = (member.instance.to_string(), member.remaining_ms.to_string());
        [instance, or_dash(member.name.as_ref()), remaining, state(member)]
    };
    let identities = identities(members);
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

/// Formats the duties; with the results of polls if there are any.
fn duty_table(duties: &[DutyListing]) -> String {
    let duty = |duty: &DutyListing| {
        let (holder, epoch) = (or_dash(duty.holder.as_ref()), or_dash(duty.epoch));
        [duty.duty.to_string(), holder, epoch, or_dash(duty.remaining_ms)]
    };
    if duties.iter().all(|duty| duty.poll.is_none()) {
        return table(["DUTY", "HOLDER", ">EPOCH", ">REMAINING_MS"], duties.iter().map(duty));
    }
    let heads = ["DUTY", "HOLDER", ">EPOCH", ">REMAINING_MS", "LAST", "NEXT", "RESULT"];
    let polled = |listed: &DutyListing| {
        let [name, holder, epoch, remaining] = duty(listed);
        let report = listed.poll.as_ref().map(|poll| &poll.report);
        let last = or_dash(report.map(|report| timestamp(report.polled_unix_ms)));
        let next = or_dash(report.and_then(|report| report.next_unix_ms).map(timestamp));
        [name, holder, epoch, remaining, last, next, or_dash(report.map(|it| poll_result(it, 60)))]
    };
    table(heads, duties.iter().map(polled))
}

/// Describes the last poll of a target, with at most this many characters of the reason.
pub(super) fn poll_result(report: &PollReport, most: usize) -> String {
    if !report.is_failing() {
        return "succeeded".to_owned();
    }
    let reason = shown(report.last_failure.as_deref().unwrap_or_default());
    let cut: String = reason.chars().take(most).collect();
    let more = if cut.len() < reason.len() { "..." } else { "" };
    format!("failed, {} in a row: {cut}{more}", report.failures)
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
