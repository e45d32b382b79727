//! `tenure evict`: puts an instance out of its group.

use serde_json::{Value, json};
use tenure_core::store::{CurrentHolder, Evict, Evicted};
use tenure_core::{DutyKey, GroupName, InstanceId, Reason, Store};

use super::sight::Sight;
use super::{conflict, duties, some_of};
use crate::failure::Failure;
use crate::ls::millis;
use crate::output::{DRY_RUN, document, to_stderr};
use crate::why::Trail;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The group, as it is printed
    group: String,
    /// The instance, as it is printed
    instance: String,
    /// Take its duties at once: what it still does is fenced
    #[arg(long)]
    now: bool,
    /// Say what would happen and change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug)]
pub(crate) struct Task {
    group: GroupName,
    instance: InstanceId,
    now: bool,
    dry_run: bool,
}

impl Task {
    pub(crate) fn new(args: &Args) -> Result<Self, Failure> {
        let (group, instance) = super::member(&args.group, &args.instance)?;
        Ok(Self { group, instance, now: args.now, dry_run: args.dry_run })
    }
}

pub(crate) async fn run(store: &dyn Store, task: Task, json: bool) -> Result<String, Failure> {
    let Task { group, instance, now, dry_run } = &task;
    let sight = Sight::read_people(store, group).await?;
    let already = match sight.member(instance) {
        Ok(member) if member.nonce.is_none() => {
            let what = format!("{instance} has no session: it only shares the keys; stop it there");
            return Err(conflict(what));
        }
        Ok(member) => member.evicted && !now,
        // Its TTL is over, and it may come back when it wakes up. An instance that nobody knows
        // would be barred all the same: a typo must not do that.
        Err(unknown) => {
            let trail = Trail::read(store, group).await?;
            if !trail.0.iter().any(|entry| entry.instance == *instance) {
                return Err(unknown);
            }
            false
        }
    };
    let mut lives = true;
    if !dry_run && !already {
        let when = if *now { Evict::Now } else { Evict::AtTtl };
        let evicted =
            store.evict(group, instance, when, &Reason::new("evict by operator")?).await?;
        lives = evicted != Evicted::NotAMember;
    }
    if json {
        return Ok(document(&task.value(&sight, already)));
    }
    if *dry_run {
        to_stderr(DRY_RUN);
    }
    if !sight.has_successor(&sight.group, instance) {
        to_stderr("no other member takes duties: they stay free until one comes");
    }
    Ok(task.sentences(&sight, already, lives))
}

impl Task {
    fn value(&self, sight: &Sight, already: bool) -> Value {
        let duty = |(duty, holder): (&DutyKey, &CurrentHolder)| {
            let free_in = if self.now { 0 } else { millis(holder.remaining) };
            json!({ "duty": duty.to_string(), "free_in_ms": free_in })
        };
        let held = sight.held_by(&self.instance);
        json!({
            "dry_run": self.dry_run,
            "group": self.group.to_string(),
            "instance": self.instance.to_string(),
            "now": self.now,
            "changed": !already,
            "duties": held.into_iter().map(duty).collect::<Vec<_>>(),
        })
    }

    fn sentences(&self, sight: &Sight, already: bool, lives: bool) -> String {
        let Self { group, instance, now, dry_run } = self;
        let held = sight.held_by(instance);
        let did = match (already, lives, dry_run) {
            (true, _, _) => "was evicted before",
            (false, false, _) => "is no member now, and cannot come back",
            (false, true, true) => "would be evicted",
            (false, true, false) => "is evicted: it cannot renew, and not join again",
        };
        let most = held.iter().map(|(_, holder)| millis(holder.remaining)).max().unwrap_or(0);
        let when = match (now, dry_run) {
            (true, true) => "would come free at once".to_owned(),
            (true, false) => "came free at once".to_owned(),
            (false, true) => format!("would come free within {most} ms"),
            (false, false) => format!("come free within {most} ms"),
        };
        let names = some_of(held.iter().map(|(duty, _)| duty.to_string()));
        let what = match held.len() {
            0 => "it held nothing".to_owned(),
            count => format!("{} {when}: {names}", duties(count)),
        };
        format!("{instance} of {group} {did}\n{what}\n")
    }
}
