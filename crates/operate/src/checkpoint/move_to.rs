//! Move: takes checkpoints to another store, and continues an interrupted move.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use tenure_core::engine::Layout;
use tenure_core::store::Member;
use tenure_core::{Code, DutyId, DutyKey, GroupName, InstanceId, Moved, Store, StoreError};
use tenure_duty::process;
use tenure_store::signing::{Protection, split_note};
use tenure_store::transfer::{Arrival, Move, MoveOutcome, OperatorSession, Preview, preview};
use tenure_wire::checkpoint::{Shards, WithLease, least};

use super::{OPERATOR_TTL, duties_in, operator};
use crate::error::OperateError;
use crate::pause::Scope;
use crate::serialize::{optional_error, texts};

/// Reason in the audit trail, and the session note by which an interrupted move is recognized.
const REASON: &str = "checkpoint move";
/// Pause between two attempts while another move still holds a duty.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Attempts that together last slightly longer than a lease.
const MAX_RETRIES: u128 = OPERATOR_TTL.as_millis() / RETRY_PAUSE.as_millis() + 4;
/// Outcome for a duty without a checkpoint.
const ONLY_EPOCH: &str = "no checkpoint; the epoch goes on";

/// Format of the documents to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveFormat {
    /// The cursor alone.
    Plain,
    /// A cursor with the lease under which it was written.
    Lease,
    /// One document with the cursors of all shards of a group.
    Shards,
}

/// Checkpoints to move.
#[derive(Clone, Debug)]
pub struct MoveOptions {
    /// Duties and groups; empty for the whole store.
    pub scopes: Vec<Scope>,
    /// Name in the other store, for one duty or a merge.
    pub rename: Option<DutyKey>,
    /// Merge all into the cursor that is furthest behind.
    pub merge: bool,
    /// Format of the documents.
    pub format: MoveFormat,
    /// Take duties from their holders, and replace checkpoints in the other store.
    pub force: bool,
    /// Report what would happen and change nothing.
    pub dry_run: bool,
}

/// One side of a move. The store is open without signature checks.
pub struct MoveSide {
    /// Store.
    pub store: Arc<dyn Store>,
    /// Address of the store, without secrets.
    pub address: String,
    /// Signing and encryption of checkpoints.
    pub protection: Protection,
}

/// Outcome for a batch.
#[derive(Clone, Debug, Serialize)]
pub struct MovedBatch {
    /// Duties.
    #[serde(serialize_with = "texts")]
    pub duties: Vec<DutyKey>,
    /// Name in the other store; the group for shards.
    #[serde(rename = "as")]
    pub target: String,
    /// Outcome in words, or `refused`.
    pub outcome: &'static str,
    /// Error of a refused move.
    #[serde(serialize_with = "optional_error")]
    pub error: Option<StoreError>,
    /// Whether the duties become the shards of a group.
    #[serde(skip)]
    pub shards: bool,
}

impl MovedBatch {
    /// Whether a checkpoint was moved, or would be.
    pub fn is_moved(&self) -> bool {
        self.error.is_none() && self.outcome != ONLY_EPOCH
    }
}

/// Progress of a move.
#[derive(Debug)]
pub enum MoveEvent<'a> {
    /// A batch has finished: its number, the number of batches, and the outcome.
    Batch(usize, usize, &'a MovedBatch),
    /// An interrupted move still holds the duties; this one waits until its lease expires.
    WaitingForOther,
}

impl MoveOptions {
    /// Returns the duties to move, in batches that are moved together. Unknown names are refused: a
    /// typo must not look like success.
    pub async fn batches(&self, from: &dyn Store) -> Result<Vec<Vec<DutyKey>>, OperateError> {
        for scope in &self.scopes {
            let holders = from.holders(scope.group()).await?;
            let (there, what) = match scope {
                Scope::Duty(duty) => {
                    (holders.iter().any(|holder| holder.duty == *duty), duty.to_string())
                }
                Scope::Group(group) => (!holders.is_empty(), format!("group {group}")),
            };
            if !there {
                return Err(OperateError::not_there(format!("no {what} in FROM")));
            }
        }
        let duties = duties_in(from, &self.scopes).await?;
        Ok(match self.merge {
            true => vec![duties],
            false => duties.into_iter().map(|duty| vec![duty]).collect(),
        })
    }

    /// Name of a batch in the other store; for shards, the name of the first one.
    fn target(&self, batch: &[DutyKey]) -> Result<DutyKey, StoreError> {
        match (&self.rename, self.format) {
            (Some(rename), _) => Ok(rename.clone()),
            (None, MoveFormat::Shards) => first_shard(&batch[0].group),
            (None, _) => Ok(batch[0].clone()),
        }
    }

    /// Converts the cursors of a batch.
    fn convert(&self, duty: DutyKey, cursors: &[Vec<u8>]) -> Result<Vec<Arrival>, StoreError> {
        if self.merge {
            let source = least(cursors)?;
            return Ok(vec![Arrival { duty, source, payload: cursors[source].clone() }]);
        }
        let payload = match self.format {
            MoveFormat::Plain => cursors[0].clone(),
            MoveFormat::Lease => {
                WithLease::parse(&cursors[0])?.checkpoint.get().as_bytes().to_vec()
            }
            MoveFormat::Shards => return shards(&duty.group, &cursors[0]),
        };
        Ok(vec![Arrival { duty, source: 0, payload }])
    }
}

/// Duty of a group's first shard.
pub fn first_shard(group: &GroupName) -> Result<DutyKey, StoreError> {
    Ok(DutyKey { group: group.clone(), id: Layout::shard(0)? })
}

/// Splits a document of all shards into one arrival per shard.
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

/// A move of checkpoints from one store to another.
pub struct CheckpointMove<'a> {
    options: &'a MoveOptions,
    from: OperatorSession,
    to: OperatorSession,
    /// Set from outside to stop after the current batch.
    stop: &'a AtomicBool,
    observe: &'a mut dyn FnMut(MoveEvent<'_>),
}

impl<'a> CheckpointMove<'a> {
    /// Prepares a move.
    pub fn new(
        options: &'a MoveOptions,
        from: MoveSide,
        to: MoveSide,
        stop: &'a AtomicBool,
        observe: &'a mut dyn FnMut(MoveEvent<'_>),
    ) -> Result<Self, StoreError> {
        let session = |side: MoveSide, name: &str| {
            let mut operator = operator(REASON, options.force)?;
            // Both sides may be one store, in which an instance has one session.
            operator.instance = InstanceId::new(format!("{}-{name}", operator.instance.as_str()))?;
            Ok::<_, StoreError>(OperatorSession::new(
                side.store,
                side.protection,
                side.address,
                operator,
            ))
        };
        Ok(Self { options, from: session(from, "from")?, to: session(to, "to")?, stop, observe })
    }

    /// Moves the batches one after another. Returns their outcomes, and the error that ended the
    /// move early.
    pub async fn run(
        mut self,
        batches: &[Vec<DutyKey>],
    ) -> Result<(Vec<MovedBatch>, Option<StoreError>), OperateError> {
        let mut moved = Vec::new();
        let mut ended = None;
        for (n, batch) in batches.iter().enumerate() {
            if self.stop.load(Ordering::Relaxed) {
                let all = batches.len();
                let detail = format!("interrupted after {n} of {all}; run the same command again");
                ended = Some(StoreError::unknown(Code::Lost, detail));
                break;
            }
            let target = self.options.target(batch)?;
            let outcome = match self.options.dry_run {
                true => self.preview(batch, &target).await,
                false => self.carry(batch, &target).await,
            };
            let shards = self.options.format == MoveFormat::Shards;
            let error = outcome.as_ref().err().cloned();
            moved.push(MovedBatch {
                duties: batch.clone(),
                target: if shards { target.group.to_string() } else { target.to_string() },
                outcome: outcome.unwrap_or("refused"),
                error,
                shards,
            });
            let last = &moved[n];
            (self.observe)(MoveEvent::Batch(n + 1, batches.len(), last));
            ended = last.error.clone().filter(|error| !is_about_one_duty(error));
            if ended.is_some() {
                break;
            }
        }
        self.from.close().await;
        self.to.close().await;
        Ok((moved, ended))
    }

    /// Moves one batch. If an interrupted move still holds it, waits until its lease expires.
    async fn carry(
        &mut self,
        batch: &[DutyKey],
        target: &DutyKey,
    ) -> Result<&'static str, StoreError> {
        let options = self.options;
        let convert = |cursors: &[Vec<u8>]| options.convert(target.clone(), cursors);
        let mut retries = 0;
        loop {
            match Move::new(&mut self.from, &mut self.to).run(batch, target, &convert).await {
                Err(error)
                    if error.code() == Code::Held
                        && retries < MAX_RETRIES
                        && !self.stop.load(Ordering::Relaxed)
                        && self.is_held_by_other_move(batch, target).await? =>
                {
                    if retries == 0 {
                        (self.observe)(MoveEvent::WaitingForOther);
                    }
                    retries += 1;
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Ok(MoveOutcome::Moved) => return Ok("moved"),
                Ok(MoveOutcome::AlreadyMoved) => return Ok("already moved"),
                Ok(MoveOutcome::OnlyEpoch) => return Ok(ONLY_EPOCH),
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether a holder on either side is another move.
    async fn is_held_by_other_move(
        &self,
        batch: &[DutyKey],
        target: &DutyKey,
    ) -> Result<bool, StoreError> {
        for (session, duty) in [(&self.from, &batch[0]), (&self.to, target)] {
            let members = session.store().members(&duty.group).await?;
            let mine = process::instance().id().as_str();
            let other = |member: &Member| !member.instance.as_str().starts_with(mine);
            if members.iter().any(|member| split_note(&member.note).0 == REASON && other(member)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Describes what a move would do, as far as this is known without claiming.
    async fn preview(
        &self,
        batch: &[DutyKey],
        target: &DutyKey,
    ) -> Result<&'static str, StoreError> {
        let mut outcome = "would move";
        for duty in batch {
            let Preview { from, to, moved, holder } =
                preview(&self.from, duty, &self.to, target).await?;
            outcome = match (from, to, moved) {
                _ if holder.is_some() => "is held: use --force, or stop its holder",
                (None, _, _) => "has no checkpoint; would move only its epoch",
                (_, _, Some(Moved { done: true, .. })) => "already moved",
                (_, _, Some(Moved { done: false, .. })) => "would finish the move",
                (_, Some(_), None) => "would move; the other store has a checkpoint",
                (_, None, None) => outcome,
            };
        }
        Ok(outcome)
    }
}

/// Whether an error concerns one batch, so that others may still move.
fn is_about_one_duty(error: &StoreError) -> bool {
    !error.is_unknown()
        && matches!(
            error.code(),
            Code::Held
                | Code::Moved
                | Code::Occupied
                | Code::BadSignature
                | Code::Replayed
                | Code::CannotDecrypt
                | Code::Untrusted
                | Code::BadInput
        )
}
