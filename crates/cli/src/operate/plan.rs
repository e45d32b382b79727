//! `tenure plan`.

use std::path::PathBuf;

use serde_json::json;
use tenure_core::{Code, DutyId, DutyKey, GroupName, InstanceId, StoreError};
use tenure_operate::plan::{PlanChanges, PlanReport, PlannedMember, PlannedMove, plan};

use super::duties;
use crate::args::{Global, group_name, name, path};
use crate::failure::Failure;
use crate::output::{note_all, value};
use crate::table::{or_dash, table};

#[derive(clap::Args)]
pub(crate) struct PlanArgs {
    /// Group, as printed by `tenure ls`
    #[arg(required_unless_present = "all_groups")]
    group: Option<String>,
    /// Plan in every group in which the members of --leave and --weight are
    #[arg(long, conflicts_with_all = ["group", "join", "pin", "out"])]
    all_groups: bool,
    /// Assume a new member; repeatable
    #[arg(long, value_name = "NAME")]
    join: Vec<String>,
    /// Assume that this member hands over all duties; repeatable
    #[arg(long, value_name = "INSTANCE")]
    leave: Vec<String>,
    /// Assume this weight of a member; 0 takes no duties; repeatable
    #[arg(long, value_name = "INSTANCE=N")]
    weight: Vec<String>,
    /// Assume this pin of a duty, given as ID or GROUP/ID; repeatable
    #[arg(long, value_name = "ID=INSTANCE")]
    pin: Vec<String>,
    /// Write the plan to this file, for `tenure apply`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl PlanArgs {
    pub(crate) async fn run(&self, global: &Global) -> Result<String, Failure> {
        let Some(group) = &self.group else { return self.run_in_all_groups(global).await };
        let group = group_name(group)?;
        let changes = self.changes(&group)?;
        let out = self.out.as_deref().map(path).transpose()?;
        let url = global.url()?;
        let store = global.open().await?;
        let changes = changes.resolve(&*store, &group).await?;
        let planned = plan(&*store, &group, changes).await?;
        if let Some(path) = &out {
            planned.file(url.place()).write(path)?;
        }
        let mut value = value(&planned);
        value["out"] = json!(out.map(|path| path.display().to_string()));
        Ok(global.show(&value, || {
            note_all(&planned.notes);
            text(&planned)
        }))
    }

    async fn run_in_all_groups(&self, global: &Global) -> Result<String, Failure> {
        if self.leave.is_empty() && self.weight.is_empty() {
            return Err(Failure::Usage("--all-groups needs --leave or --weight".to_owned()));
        }
        // There are no pins, which belong to a group.
        let changes = self.changes_of_members()?;
        let store = global.open().await?;
        let mut plans = Vec::new();
        for (group, changes) in changes.resolve_in_all_groups(&*store).await? {
            plans.push(plan(&*store, &group, changes).await?);
        }
        Ok(global.show(&json!({ "groups": plans }), || {
            plans.iter().for_each(|planned| note_all(&planned.notes));
            plans.iter().map(text).collect::<Vec<_>>().join("\n")
        }))
    }

    /// Changes without pins.
    fn changes_of_members(&self) -> Result<PlanChanges, Failure> {
        let instance = |text: &str| name(text, InstanceId::unescape);
        let instances = |all: &[String]| all.iter().map(|text| instance(text)).collect();
        let (joins, leaves): (Result<_, _>, Result<_, _>) =
            (instances(&self.join), instances(&self.leave));
        let mut changes = PlanChanges { joins: joins?, leaves: leaves?, ..PlanChanges::default() };
        for text in &self.weight {
            let form = "INSTANCE=N, with a whole number";
            let (who, weight) = pair("--weight", text, form)?;
            let wrong = |_| Failure::Usage(format!("--weight is {form} of at most {}", u32::MAX));
            let weight = weight.parse().map_err(wrong)?;
            changes.add_weight(instance(who)?, weight)?;
        }
        Ok(changes)
    }

    fn changes(&self, group: &GroupName) -> Result<PlanChanges, Failure> {
        let mut changes = self.changes_of_members()?;
        for text in &self.pin {
            let (duty, who) = pair("--pin", text, "ID=INSTANCE")?;
            let (duty, who) = (duty_of(group, duty)?, name(who, InstanceId::unescape)?);
            let other = changes.pins.insert(duty.clone(), who.clone());
            if let Some(other) = other.filter(|other| *other != who) {
                let what = format!("{duty} is pinned to {other} and to {who}");
                return Err(StoreError::refused(Code::Conflict, what).into());
            }
        }
        Ok(changes)
    }
}

/// Splits `NAME=VALUE`; in a name an equals sign is written `%3D`, as it is printed.
fn pair<'a>(option: &str, text: &'a str, form: &str) -> Result<(&'a str, &'a str), Failure> {
    let apart = text.split_once('=').filter(|(left, right)| !left.is_empty() && !right.is_empty());
    let apart = apart.filter(|(_, right)| !right.contains('='));
    apart.ok_or_else(|| Failure::Usage(format!("{option} is {form}; write = in a name as %3D")))
}

/// Reads a duty of the group: its id, or `GROUP/ID`.
fn duty_of(group: &GroupName, text: &str) -> Result<DutyId, Failure> {
    if !text.contains('/') {
        return name(text, DutyId::unescape);
    }
    let duty: DutyKey = name(text, str::parse)?;
    match duty.group == *group {
        true => Ok(duty.id),
        false => Err(Failure::Usage(format!("{duty} does not belong to group {group}"))),
    }
}

fn text(planned: &PlanReport) -> String {
    let lines = planned.changes.lines();
    let changes: String = match lines.is_empty() {
        true => "  nothing\n".to_owned(),
        false => lines.iter().map(|line| format!("  {line}\n")).collect(),
    };
    let member = |member: &PlannedMember| {
        let PlannedMember { instance, name, before, after } = member;
        let change = format!("{:+}", *after as i64 - *before as i64);
        let name = or_dash(name.as_ref());
        [instance.to_string(), name, before.to_string(), after.to_string(), change]
    };
    let members = planned.members.iter().map(member);
    let members = table(["MEMBER", "NAME", ">BEFORE", ">AFTER", ">CHANGE"], members);
    let step = |step: &PlannedMove| {
        let (from, to) = (or_dash(step.from.as_ref()), or_dash(step.to.as_ref()));
        [step.duty.to_string(), from, to, step.why.clone()]
    };
    let moves = match planned.moves.is_empty() {
        true => String::new(),
        false => {
            let moves = planned.moves.iter().map(step);
            format!("\n{}", table(["DUTY", "FROM", "TO", "WHY"], moves))
        }
    };
    let count = |test: fn(&&PlannedMove) -> bool| planned.moves.iter().filter(test).count();
    format!(
        "group {}, if this changed:\n{changes}\n{members}{moves}\n{}: {} would move, {} would be \
         assigned, {} would have no member\n",
        planned.group,
        duties(planned.duties),
        count(|step| step.from.is_some() && step.to.is_some()),
        count(|step| step.from.is_none()),
        count(|step| step.to.is_none()),
    )
}
