//! Checks that every hold whose start was recorded has a recorded end (R24).

use std::collections::BTreeMap;

use tenure_core::{Change, DutyId, Epoch, InstanceId};

use super::CheckFinding;
use crate::Nanos;

/// A record about a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordNote {
    /// When.
    pub at: Nanos,
    /// By whom.
    pub instance: InstanceId,
    /// About which duty.
    pub duty: DutyId,
    /// Under which epoch.
    pub epoch: Epoch,
    /// Kind of the record.
    pub change: Change,
}

/// Progress of one hold's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordProgress {
    Acquired,
    /// The work was cancelled; it may still be given back.
    Cancelled,
    Released,
}

/// A hold that was acquired ends with one record: released, revoked or expired. What was cancelled
/// may be given back after that, once. `running`: the holds under which work runs at the end;
/// `alive`: the processes that are there then; `forgets`: a release may be forgotten and come
/// again, and an epoch, too.
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
                    return fail(open, "acquired anew, and nothing said that it had ended");
                }
                RecordProgress::Acquired
            }
            (Change::Revoked | Change::Expired, Some(RecordProgress::Acquired)) => {
                RecordProgress::Cancelled
            }
            (Change::Released, Some(RecordProgress::Acquired | RecordProgress::Cancelled)) => {
                RecordProgress::Released
            }
            // Given back before any work was begun.
            (Change::Released, None) => continue,
            _ => return fail(note, "its end was said before, or its beginning was not"),
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
        Some((_, note)) => fail(note, "its work has stopped, and nothing said that it had ended"),
        None => Ok(()),
    }
}
