//! `tenure checkpoint move`: from one store to another, and again after an interruption.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tenure_core::engine::Layout;
use tenure_core::guarantee::Level;
use tenure_core::store::Member;
use tenure_core::{Code, DutyId, DutyKey, GroupName, InstanceId, Moved, Store, StoreError};
use tenure_store::transfer::{Arrival, Desk, Move, Outcome, Preview, preview};
use tenure_store::{IfAbsent, StoreUrl};
use tenure_wire::checkpoint::{Shards, WithLease, least};

use super::{Name, TTL, bare, duties, duty_of, operator};
use crate::args::{self, Schema, group_name};
use crate::failure::Failure;
use crate::output::{document, shown, to_stderr};
use crate::{doctor, signing};

/// The reason in the audit, and the note by which an interrupted move is known.
const WHY: &str = "checkpoint move";

/// How long to wait before the next look at a hold that is about to end.
const WAIT: Duration = Duration::from_millis(500);

/// So many looks: a whole TTL and a little more.
const WAITS: u128 = TTL.as_millis() / WAIT.as_millis() + 4;

/// What is said of a duty that has nothing to move.
const NO_CHECKPOINT: &str = "no checkpoint; the epoch goes on";

/// A move, read and checked.
#[derive(Debug)]
pub(crate) struct Moving {
    from: StoreUrl,
    to: StoreUrl,
    names: Vec<Name>,
    rename: Option<DutyKey>,
    merge: bool,
    schema: Schema,
    force: bool,
    dry_run: bool,
    require: Option<Level>,
}

impl Moving {
    pub(super) fn new(given: &args::Move, names: Vec<Name>) -> Result<Self, Failure> {
        let (from, to) = (StoreUrl::parse(&given.from)?, StoreUrl::parse(&given.to)?);
        let rename = given.rename.as_deref().map(|name| match given.schema {
            Schema::Shards => first_shard(&group_name(name)?),
            _ => duty_of(name),
        });
        let rename = rename.transpose()?;
        if from.place() == to.place() && rename.is_none() {
            return Err(Failure::Usage("FROM and TO are the same store".to_owned()));
        }
        if given.merge && given.schema != Schema::Plain {
            return Err(Failure::Usage("--merge takes cursors, not other documents".to_owned()));
        }
        let args::Move { merge, schema, force, dry_run, .. } = *given;
        let require = given.require.as_deref().and_then(Level::parse);
        Ok(Self { from, to, names, rename, merge, schema, force, dry_run, require })
    }

    /// What goes together: all with `--merge`, else each alone.
    fn batches(&self, duties: Vec<DutyKey>) -> Result<Vec<Vec<DutyKey>>, Failure> {
        if self.merge && duties.is_empty() {
            let detail = format!("{} has no duties to put together", self.from);
            return Err(StoreError::refused(Code::NotThere, detail).into());
        }
        if self.merge {
            return Ok(vec![duties]);
        }
        if self.rename.is_some() && duties.len() > 1 {
            let found = duties.len();
            return Err(Failure::Usage(format!(
                "--as names one duty, but {found} would be moved; name one, or use --merge"
            )));
        }
        Ok(duties.into_iter().map(|duty| vec![duty]).collect())
    }

    /// The name of the first of them in the other store.
    fn target(&self, batch: &[DutyKey]) -> Result<DutyKey, Failure> {
        match (&self.rename, self.schema) {
            (Some(rename), _) => Ok(rename.clone()),
            (None, Schema::Shards) => first_shard(&batch[0].group),
            (None, _) => Ok(batch[0].clone()),
        }
    }

    /// What the cursors of a batch become.
    fn convert(&self, duty: DutyKey, cursors: &[Vec<u8>]) -> Result<Vec<Arrival>, StoreError> {
        if self.merge {
            let source = least(cursors)?;
            return Ok(vec![Arrival { duty, source, payload: cursors[source].clone() }]);
        }
        let payload = match self.schema {
            Schema::Plain => cursors[0].clone(),
            Schema::Lease => WithLease::parse(&cursors[0])?.checkpoint.get().as_bytes().to_vec(),
            Schema::Shards => return shards(&duty.group, &cursors[0]),
        };
        Ok(vec![Arrival { duty, source: 0, payload }])
    }
}

fn first_shard(group: &GroupName) -> Result<DutyKey, Failure> {
    Ok(DutyKey { group: group.clone(), id: Layout::shard(0)? })
}

/// Each shard as the duty under which members of the group work on it.
fn shards(group: &GroupName, cursor: &[u8]) -> Result<Vec<Arrival>, StoreError> {
    let mut arrivals = Vec::new();
    for (id, shard) in Shards::parse(cursor)?.shards {
        let payload = match shard.last_updated_at {
            Some(at) => json!({ "offset": shard.offset, "last_updated_at": at }),
            None => json!({ "offset": shard.offset }),
        };
        let duty = DutyKey { group: group.clone(), id: DutyId::new(id)? };
        arrivals.push(Arrival { duty, source: 0, payload: payload.to_string().into_bytes() });
    }
    Ok(arrivals)
}

/// One line of the report.
struct Line {
    batch: Vec<DutyKey>,
    target: DutyKey,
    /// They arrive as all shards of the target's group.
    shards: bool,
    outcome: Result<&'static str, StoreError>,
}

pub(super) async fn run(
    signing: &signing::Settings,
    moving: Moving,
    json: bool,
) -> Result<String, Failure> {
    let from = bare(&moving.from, IfAbsent::Refuse).await?;
    known(&*from, &moving.names).await?;
    let batches = moving.batches(duties(&*from, &moving.names).await?)?;
    let to = open_target(&moving).await?;
    let desk = |store, url: &StoreUrl, side: &str| {
        let mut operator = operator(WHY, moving.force)?;
        // Both sides may be one store, where an instance has one session.
        operator.instance = InstanceId::new(format!("{}-{side}", operator.instance.as_str()))?;
        Ok::<_, StoreError>(Desk::new(store, signing.signing()?, url.place(), operator))
    };
    let (mut from, mut to) = (desk(from, &moving.from, "from")?, desk(to, &moving.to, "to")?);
    let stop = stop_on_signal();
    let mut lines: Vec<Line> = Vec::new();
    let mut ended = Ok(());
    for (n, batch) in batches.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            ended = Err(interrupted(n, batches.len()));
            break;
        }
        let target = moving.target(batch)?;
        let outcome = match moving.dry_run {
            true => would(&from, batch, &to, &target).await,
            false => carry(&mut from, &mut to, &moving, (batch, &target), &stop).await,
        };
        let shards = moving.schema == Schema::Shards;
        let line = Line { batch: batch.clone(), target, shards, outcome };
        to_stderr(&format!("{} of {}: {}", n + 1, batches.len(), line.for_people()));
        let fatal = line.outcome.as_ref().err().filter(|error| !is_about_one(error)).cloned();
        lines.push(line);
        if let Some(error) = fatal {
            ended = Err(error);
            break;
        }
    }
    from.close().await;
    to.close().await;
    report(&moving, &lines, ended, json)
}

/// Refuses names that FROM does not know: a slip of the pen must not look like success.
async fn known(from: &dyn Store, names: &[Name]) -> Result<(), StoreError> {
    for name in names {
        let (group, duty) = match name {
            Name::Duty(duty) => (&duty.group, Some(duty)),
            Name::Group(group) => (group, None),
        };
        let holders = from.holders(group).await?;
        let there = match duty {
            Some(duty) => holders.iter().any(|holder| &holder.duty == duty),
            None => !holders.is_empty(),
        };
        if !there {
            let what = duty.map_or_else(|| format!("group {group}"), ToString::to_string);
            return Err(StoreError::refused(Code::NotThere, format!("no {what} in FROM")));
        }
    }
    Ok(())
}

/// Opens TO, or makes it, and looks at what it promises.
async fn open_target(moving: &Moving) -> Result<Arc<dyn Store>, Failure> {
    let (to, made) = match bare(&moving.to, IfAbsent::Refuse).await {
        Err(error) if error.code() == Code::Absent && !moving.dry_run => {
            (bare(&moving.to, IfAbsent::Create).await?, true)
        }
        opened => (opened?, false),
    };
    match doctor::at_start(&*to, moving.require).await {
        Err(error) if made => {
            let kept = "every checkpoint, as it was; an empty store was made at TO";
            Err(Failure::Partly { shown: String::new(), error, kept })
        }
        done => Ok(done.map(|()| to)?),
    }
}

/// Whether the error is about these duties, so that others may still go.
fn is_about_one(error: &StoreError) -> bool {
    let code = error.code();
    !error.is_unknown()
        && matches!(
            code,
            Code::Held
                | Code::Moved
                | Code::Occupied
                | Code::BadSignature
                | Code::Replayed
                | Code::BadInput
        )
}

fn interrupted(done: usize, all: usize) -> StoreError {
    let detail = format!("interrupted after {done} of {all}; run the same command again");
    StoreError::unknown(Code::Lost, detail)
}

/// Ctrl-C lets the duty under way come to its end; a second one does not.
fn stop_on_signal() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    tokio::spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() {
            if told.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
            to_stderr("stopping after this one; once more to stop at once");
        }
    });
    stop
}

/// Moves one batch. Where another move died and its holds still stand, waits for their TTL.
async fn carry(
    from: &mut Desk,
    to: &mut Desk,
    moving: &Moving,
    (batch, target): (&[DutyKey], &DutyKey),
    stop: &AtomicBool,
) -> Result<&'static str, StoreError> {
    let convert = |cursors: &[Vec<u8>]| moving.convert(target.clone(), cursors);
    let mut waits = 0;
    loop {
        match Move::new(from, to).run(batch, target, &convert).await {
            Err(error)
                if error.code() == Code::Held
                    && waits < WAITS
                    && !stop.load(Ordering::Relaxed)
                    && another_move(from, to, batch, target).await? =>
            {
                if waits == 0 {
                    to_stderr("an interrupted move still holds this; waiting until it lets go");
                }
                waits += 1;
                tokio::time::sleep(WAIT).await;
            }
            Ok(outcome) => return Ok(word(outcome)),
            Err(error) => return Err(error),
        }
    }
}

/// Whether a holder on either side is another move.
async fn another_move(
    from: &Desk,
    to: &Desk,
    batch: &[DutyKey],
    target: &DutyKey,
) -> Result<bool, StoreError> {
    for (desk, duty) in [(from, &batch[0]), (to, target)] {
        let members = desk.store().members(&duty.group).await?;
        let mine = tenure_duty::process::instance().id().as_str();
        let other = |member: &Member| !member.instance.as_str().starts_with(mine);
        if members.iter().any(|member| member.note.as_str() == WHY && other(member)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Moved => "moved",
        Outcome::AlreadyMoved => "already moved",
        Outcome::OnlyEpoch => NO_CHECKPOINT,
    }
}

/// What a move would do, as far as it can be told without claiming.
async fn would(
    from: &Desk,
    batch: &[DutyKey],
    to: &Desk,
    target: &DutyKey,
) -> Result<&'static str, StoreError> {
    let mut says = "would move";
    for duty in batch {
        let Preview { from: source, to: there, moved, holder } =
            preview(from, duty, to, target).await?;
        says = match (source, there, moved) {
            _ if holder.is_some() => "is held: needs --force, or its holder to stop",
            (None, _, _) => "has no checkpoint; would take its epoch along",
            (_, _, Some(Moved { done: true, .. })) => "was moved before",
            (_, _, Some(Moved { done: false, .. })) => "would finish the move",
            (_, Some(_), None) => "would move; the other store has a checkpoint",
            (_, None, None) => says,
        };
    }
    Ok(says)
}

impl Line {
    fn for_people(&self) -> String {
        let names: Vec<String> = self.batch.iter().map(ToString::to_string).collect();
        let renamed = self.batch.len() > 1 || self.batch[0] != self.target;
        let target = match (self.shards, renamed) {
            (true, _) => format!(" as the shards of {}", self.target.group),
            (false, true) => format!(" as {}", self.target),
            (false, false) => String::new(),
        };
        let says = match &self.outcome {
            Ok(word) => (*word).to_owned(),
            Err(error) => shown(&error.problem().to_string()),
        };
        format!("{}{target}: {says}", names.join(" + "))
    }

    fn for_programs(&self) -> Value {
        let error = self.outcome.as_ref().err().map(
            |error| json!({ "code": error.code().as_str(), "detail": error.problem().detail }),
        );
        let target = match self.shards {
            true => self.target.group.to_string(),
            false => self.target.to_string(),
        };
        json!({
            "duties": self.batch.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "as": target,
            "outcome": self.outcome.as_ref().copied().unwrap_or("refused"),
            "error": error,
        })
    }
}

fn report(
    moving: &Moving,
    lines: &[Line],
    ended: Result<(), StoreError>,
    json: bool,
) -> Result<String, Failure> {
    let refused: Vec<&StoreError> =
        lines.iter().filter_map(|line| line.outcome.as_ref().err()).collect();
    let moved = |line: &&Line| matches!(&line.outcome, Ok(word) if *word != NO_CHECKPOINT);
    let good = lines.iter().filter(moved).count();
    let text = match json {
        true => document(&json!({
            "from": moving.from.to_string(),
            "to": moving.to.to_string(),
            "dry_run": moving.dry_run,
            "moves": lines.iter().map(Line::for_programs).collect::<Vec<_>>(),
        })),
        false => {
            let would = if moving.dry_run { "would be moved" } else { "moved" };
            let (from, to) = (moving.from.to_string(), moving.to.to_string());
            format!("{good} of {} {would} from {} to {}\n", lines.len(), shown(&from), shown(&to))
        }
    };
    let error = ended.err().or_else(|| refused.first().copied().cloned());
    let Some(error) = error else {
        return Ok(text);
    };
    let kept = match (error.is_unknown(), good) {
        (true, _) => "it may have happened; run the same command again",
        (false, 0) => "nothing was changed",
        (false, _) => "those that were refused, as they were; see above for the others",
    };
    Err(Failure::Partly { shown: text, error, kept })
}
