//! Checks that every hold whose start was recorded has a recorded end (R24).

use std::collections::BTreeMap;

use tenure_core::{Change, DutyId, Epoch, InstanceId};

use super::CheckFinding;
use crate::Nanos;

/// A record about a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordNote {
    /// Time of the record.
    pub at: Nanos,
    /// The instance.
    pub instance: InstanceId,
    /// The duty.
    pub duty: DutyId,
    /// The epoch of the hold.
    pub epoch: Epoch,
    /// Kind of the record.
    pub change: Change,
}

/// Progress of one hold's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordProgress {
    Acquired,
    /// The work was cancelled; the hold may still be released.
    Cancelled,
    Released,
}

/// Checks that an acquired hold ends with one record: released, revoked or expired. A cancelled one
/// may be released once after that. `running`: the holds under which work runs at the end; `alive`:
/// the processes that exist then; `forgets`: the store may lose data, so that a release or an epoch
/// occurs again.
pub(super) fn complete(
    notes: &[RecordNote],
    alive: &[InstanceId],
    running: &[(InstanceId, DutyId, Epoch)],
    forgets: bool,
) -> Result<(), CheckFinding> {
    let fail = |note: &RecordNote, what: &str| {
        let RecordNote { at, instance, duty, epoch, .. } = note;
        let at = *at as f64 / 1e9;
        let what =
            format!("{instance} {duty}@{epoch}, {} at {at:.3}: {what}", note.change.as_str());
        Err(CheckFinding { checker: "records", what })
    };
    let mut told: BTreeMap<(&InstanceId, &DutyId), (RecordProgress, &RecordNote)> = BTreeMap::new();
    for note in notes {
        let key = (&note.instance, &note.duty);
        let before = told.get(&key).filter(|(_, before)| before.epoch == note.epoch);
        let before = before.map(|(told, _)| *told);
        let before = before.filter(|told| !forgets || *told == RecordProgress::Acquired);
        let next = match (note.change, before) {
            (Change::Acquired | Change::TakenOver, None) => {
                let open = told.get(&key).filter(|(told, _)| *told == RecordProgress::Acquired);
                if let Some((_, open)) = open {
                    return fail(open, "acquired again without a record of the previous end");
                }
                RecordProgress::Acquired
            }
            (Change::Revoked | Change::Expired, Some(RecordProgress::Acquired)) => {
                RecordProgress::Cancelled
            }
            (Change::Released, Some(RecordProgress::Acquired | RecordProgress::Cancelled)) => {
                RecordProgress::Released
            }
            // Released before any work was started.
            (Change::Released, None) => continue,
            _ => return fail(note, "its end was already recorded, or its start was not"),
        };
        told.insert(key, (next, note));
    }
    let lost = told.values().find(|(told, note)| {
        let runs = |(instance, duty, epoch): &(InstanceId, DutyId, Epoch)| {
            (instance, duty, *epoch) == (&note.instance, &note.duty, note.epoch)
        };
        *told == RecordProgress::Acquired
            && alive.contains(&note.instance)
            && !running.iter().any(runs)
    });
    match lost {
        Some((_, note)) => fail(note, "its work has stopped, but no end was recorded"),
        None => Ok(()),
    }
}
