//! `tenure explain`.

use std::time::Duration;

use serde_json::json;
use tenure_core::store::{AuditEntry, CurrentHolder};
use tenure_core::text::span;
use tenure_core::{Code, DutyKey, InstanceId, Store, StoreError};
use tenure_operate::explain::{ExplainedMember, Explanation, PastTime, explain};
use tenure_operate::polls::PollStatus;
use tenure_operate::{find, timestamp};

use super::ls::poll_result;
use super::read_time;
use crate::args::{Global, name};
use crate::failure::Failure;
use crate::output::{note_all, shown, to_stderr};
use crate::table::{or_dash, table};

/// Maximum number of transitions in the text output; JSON has all.
const MAX_TRANSITIONS: usize = 20;

/// Maximum number of duties of one member that are explained.
const MAX_EXPLAINED_DUTIES: usize = 100;

// With `--all-groups` the only word, which is in `duty`, is an instance.
#[derive(clap::Args)]
pub(crate) struct ExplainArgs {
    /// Duty as GROUP/ID; with --all-groups, an instance
    duty: String,
    /// Show only this member: its id, name, host, or the beginning of its id
    instance: Option<String>,
    /// Explain the state at this time: 2026-02-15T10:00:00Z, or 10m for ten minutes ago
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// Explain each duty that the instance holds now, in every group
    #[arg(long, conflicts_with = "instance")]
    all_groups: bool,
}

impl ExplainArgs {
    pub(crate) async fn run(&self, global: &Global) -> Result<String, Failure> {
        let at = self.at.as_deref().map(|text| read_time("--at", text)).transpose()?;
        if self.all_groups {
            return self.run_in_all_groups(at, global).await;
        }
        if !self.duty.contains('/') {
            let what = "give a duty as GROUP/ID; a group cannot be explained";
            return Err(Failure::Usage(what.to_owned()));
        }
        let duty: DutyKey = name(&self.duty, str::parse)?;
        let word = self.instance.as_deref().map(|text| name(text, InstanceId::unescape));
        let (word, group) = (word.transpose()?, duty.group.clone());
        let store = global.open().await?;
        let instance = match word {
            Some(word) => Some(find::instance(&*store, &group, &word).await?),
            None => None,
        };
        let explanation = explain_to(&*store, duty, at, instance.as_ref()).await?;
        Ok(global.show(&explanation, || {
            note_all(&explanation.notes);
            text(&explanation)
        }))
    }

    async fn run_in_all_groups(
        &self,
        at: Option<PastTime>,
        global: &Global,
    ) -> Result<String, Failure> {
        let word = name(&self.duty, InstanceId::unescape)?;
        let store = &*global.open().await?;
        let mut held = Vec::new();
        for (group, instance) in find::in_all_groups(store, &word).await? {
            let is_own = |holder: &CurrentHolder| holder.instance == instance;
            let holders = store.holders(&group).await?;
            let own = holders.into_iter().filter(|it| it.holder.as_ref().is_some_and(is_own));
            held.extend(own.map(|holder| (holder.duty, instance.clone())));
        }
        let more = held.len().saturating_sub(MAX_EXPLAINED_DUTIES);
        held.truncate(MAX_EXPLAINED_DUTIES);
        let mut explanations = Vec::new();
        for (duty, instance) in held {
            explanations.push(explain_to(store, duty, at, Some(&instance)).await?);
        }
        let value = json!({ "explanations": explanations, "not_explained": more });
        Ok(global.show(&value, || {
            if more > 0 {
                to_stderr(&format!("{more} more held: explain them one by one"));
            }
            if explanations.is_empty() {
                to_stderr("it holds no duty");
            }
            explanations.iter().for_each(|explanation| note_all(&explanation.notes));
            explanations.iter().map(text).collect::<Vec<_>>().join("\n")
        }))
    }
}

/// Explains a duty; with an instance, only what concerns this member.
async fn explain_to(
    store: &dyn Store,
    duty: DutyKey,
    at: Option<PastTime>,
    instance: Option<&InstanceId>,
) -> Result<Explanation, Failure> {
    let group = duty.group.clone();
    let mut explanation = explain(store, duty, at).await?;
    if let Some(instance) = instance {
        explanation.members.retain(|member| member.instance == *instance);
        if explanation.members.is_empty() {
            let what = format!("{instance} was not a member of {group} at that time");
            return Err(StoreError::refused(Code::NotThere, what).into());
        }
    }
    Ok(explanation)
}

fn text(about: &Explanation) -> String {
    let mut text = format!("duty       {}\n", about.duty);
    let mut line = |head: &str, what: String| text.push_str(&format!("{head:<11}{what}\n"));
    if let Some(at) = about.at_unix_ms {
        line("at", timestamp(at));
    }
    line("holder", or_dash(about.holder.as_ref()));
    line("epoch", or_dash(about.epoch));
    if about.holder.is_some() {
        let since = about.since_unix_ms.map(timestamp);
        line("since", since.unwrap_or_else(|| "before the audit trail begins".to_owned()));
    }
    if let Some(PollStatus { report, .. }) = &about.poll {
        let at = timestamp(report.polled_unix_ms);
        let took = span(Duration::from_millis(report.duration_ms));
        line("last poll", format!("{at}, took {took}: {}", poll_result(report, usize::MAX)));
        let success = report.last_success_unix_ms.map(timestamp);
        line("last ok", or_dash(success));
        line("next poll", or_dash(report.next_unix_ms.map(timestamp)));
    }
    match (about.unplanned, &about.should_be) {
        (Some(why), _) => line("should be", format!("with no member: {why}")),
        (None, Some(instance)) => line("should be", format!("with {instance}")),
        (None, None) => line("should be", "with no member: none has room".to_owned()),
    }
    let head = if about.in_force_known { "in force" } else { "perhaps" };
    about.in_force.iter().for_each(|fact| line(head, fact.clone()));
    let heads = [
        "MEMBER", "NAME", "CHOSEN", "SCORE", ">SHARE", ">GIVEN", ">WEIGHT", "HOLDS", "PIN",
        "STATE", "WHY",
    ];
    let members = table(heads, about.members.iter().map(row));
    let skipped = about.transitions.len().saturating_sub(MAX_TRANSITIONS);
    let earlier = match skipped {
        0 => String::new(),
        skipped => format!("({skipped} earlier ones are shown with --json)\n"),
    };
    let transitions = about.transitions[skipped..].iter().map(transition_row);
    let transitions = table(["WHEN", "EVENT", "INSTANCE", ">EPOCH", "REASON"], transitions);
    format!("{text}\n{members}\n{transitions}{earlier}")
}

fn row(member: &ExplainedMember) -> [String; 11] {
    let yes = |is| if is { "yes" } else { "no" };
    let state = member.state.join(",");
    [
        member.instance.to_string(),
        or_dash(member.name.as_ref()),
        or_dash(member.chosen.map(yes)),
        or_dash(member.score.as_ref()),
        or_dash(member.share),
        or_dash(member.given),
        or_dash(member.weight),
        or_dash(member.holds.map(yes)),
        or_dash(member.pin.map(yes)),
        or_dash(Some(state).filter(|state| !state.is_empty())),
        member.sentence.to_owned(),
    ]
}

fn transition_row(entry: &AuditEntry) -> [String; 5] {
    [
        timestamp(entry.unix_ms),
        entry.kind.as_str().to_owned(),
        entry.instance.to_string(),
        or_dash(entry.epoch),
        shown(&entry.reason),
    ]
}
