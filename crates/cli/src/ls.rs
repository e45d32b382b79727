//! `tenure ls`: groups, their duties and their members.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_core::engine::GroupConfig;
use tenure_core::store::{Holder, Member, view_hash};
use tenure_core::{Epoch, GroupName, Store};
use tenure_duty::process;
use tenure_store::{IfAbsent, StoreUrl};

use crate::failure::{Failure, nothing_happened};
use crate::operate::lines::{self, Line};
use crate::output::{document, shown, to_stderr};
use crate::table::{Align, Column, lay_out};

/// A group as it was read.
struct View {
    group: GroupName,
    duties: Vec<Holder>,
    members: Vec<Member>,
    /// What operators have put in force; `None` when that cannot be read.
    in_force: Option<Vec<Line>>,
}

pub(crate) async fn run(
    url: &StoreUrl,
    only: Option<GroupName>,
    json: bool,
) -> Result<String, Failure> {
    let store = url.open(IfAbsent::Refuse, process::entropy()).await?;
    let groups = match only {
        Some(group) => vec![group],
        None => store.groups().await?,
    };
    let mut views = Vec::with_capacity(groups.len());
    for group in groups {
        views.push(View::read(&*store, group).await?);
    }
    if json {
        let groups: Vec<Value> = views.iter().map(View::for_programs).collect();
        return Ok(document(&json!({ "groups": groups })));
    }
    if views.is_empty() {
        to_stderr(&format!("{} has no groups yet", shown(&url.to_string())));
    }
    let texts: Vec<String> = views.iter().map(View::for_people).collect();
    Ok(texts.join("\n"))
}

impl View {
    async fn read(store: &dyn Store, group: GroupName) -> Result<Self, Failure> {
        let members = store.members(&group).await.map_err(nothing_happened)?;
        let duties = store.holders(&group).await.map_err(nothing_happened)?;
        let document = store.group_document(&group).await.map_err(nothing_happened)?;
        let read = GroupConfig::read(&document);
        let in_force = read.ok().map(|read| lines::of(&group, &read));
        Ok(Self { group, duties, members, in_force })
    }

    fn for_people(&self) -> String {
        let Self { group, duties, members, in_force } = self;
        if duties.is_empty() && members.is_empty() {
            to_stderr(&format!("group {group} has no duties and no members"));
        }
        let duties: Vec<_> = duties.iter().map(duty_row).collect();
        let members: Vec<_> = members.iter().map(member_row).collect();
        let duties = lay_out(&DUTY_COLUMNS, &duties);
        let members = lay_out(&MEMBER_COLUMNS, &members);
        let in_force = match in_force {
            None => {
                to_stderr(&format!("the document of group {group} cannot be read (ST014)"));
                String::new()
            }
            Some(lines) if lines.is_empty() => String::new(),
            Some(lines) => format!("\n{}", lines::for_people(lines)),
        };
        format!("group {group}\n\n{duties}\n{members}{in_force}")
    }

    fn for_programs(&self) -> Value {
        json!({
            "group": self.group.to_string(),
            "duties": self.duties.iter().map(duty_value).collect::<Vec<_>>(),
            "members": self.members.iter().map(member_value).collect::<Vec<_>>(),
            "in_force": self.in_force.as_deref().map(lines::for_programs),
            "view": format!("{:016x}", view_hash(&self.members, &self.duties)),
        })
    }
}

const DUTY_COLUMNS: [Column; 4] = [
    Column("DUTY", Align::Left),
    Column("HOLDER", Align::Left),
    Column("EPOCH", Align::Right),
    Column("REMAINING_MS", Align::Right),
];

const MEMBER_COLUMNS: [Column; 4] = [
    Column("MEMBER", Align::Left),
    Column("REMAINING_MS", Align::Right),
    Column("EVICTED", Align::Left),
    Column("NOTE", Align::Left),
];

/// What stands where there is nothing.
const NOTHING: &str = "-";

pub(crate) fn or_nothing(value: Option<impl ToString>) -> String {
    value.map_or_else(|| NOTHING.to_owned(), |value| value.to_string())
}

pub(crate) fn millis(remaining: Duration) -> u64 {
    u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX)
}

fn duty_row(duty: &Holder) -> [String; 4] {
    let holder = duty.holder.as_ref();
    [
        duty.duty.to_string(),
        or_nothing(holder.map(|holder| &holder.instance)),
        or_nothing(duty.epoch),
        or_nothing(holder.map(|holder| millis(holder.remaining))),
    ]
}

fn duty_value(duty: &Holder) -> Value {
    let holder = duty.holder.as_ref();
    json!({
        "duty": duty.duty.to_string(),
        "holder": holder.map(|holder| holder.instance.to_string()),
        "epoch": duty.epoch.map(Epoch::get),
        "remaining_ms": holder.map(|holder| millis(holder.remaining)),
    })
}

fn member_row(member: &Member) -> [String; 4] {
    [
        member.instance.to_string(),
        millis(member.remaining).to_string(),
        if member.evicted { "yes" } else { "no" }.to_owned(),
        shown(member.note.as_str()),
    ]
}

fn member_value(member: &Member) -> Value {
    json!({
        "instance": member.instance.to_string(),
        "remaining_ms": millis(member.remaining),
        "evicted": member.evicted,
        "foreign": member.nonce.is_none(),
        "note": member.note.as_str(),
    })
}
