//! Requests to a store, and the checks made before anything is sent.

use std::collections::BTreeSet;

use crate::{
    Code, Document, DutyKey, Epoch, GroupName, Hold, InstanceId, Nonce, Note, Session, StoreError,
    Ttl, Version,
};

/// The largest number of items in one call.
pub const MAX_BATCH: usize = 10_000;

/// Request to become a member of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OpenSession {
    /// The group.
    pub group: GroupName,
    /// The instance.
    pub instance: InstanceId,
    /// Generated for this session only.
    pub nonce: Nonce,
    /// Lease duration of the session.
    pub ttl: Ttl,
    /// Status of the member.
    pub note: Note,
}

impl OpenSession {
    /// Returns the session that this request opens.
    pub fn session(&self) -> Session {
        Session {
            group: self.group.clone(),
            instance: self.instance.clone(),
            nonce: self.nonce,
            ttl: self.ttl,
        }
    }
}

/// A duty to claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimRequest {
    /// The duty.
    pub duty: DutyKey,
    /// The grant's epoch must be larger than this: the newest epoch that the caller knows from a
    /// resource, another checkpoint, or an earlier hold.
    pub floor: Epoch,
}

impl ClaimRequest {
    /// Creates a request without a floor.
    pub fn new(duty: DutyKey) -> Self {
        Self { duty, floor: Epoch::ZERO }
    }
}

/// When the holds of an evicted instance end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evict {
    /// At their TTL: a healthy holder stops by itself before that.
    AtTtl,
    /// At once; the holder notices it when it is fenced.
    Now,
}

/// A checkpoint to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The hold under which it is written.
    pub hold: Hold,
    /// The version that it replaces; [`Version::ZERO`] for the first.
    pub expected: Version,
    /// The document.
    pub document: Document,
}

/// A report to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The hold under which it is written.
    pub hold: Hold,
    /// Its number under that hold, from 1. Each report has a larger one than the reports before; an
    /// attempt that is repeated has the same.
    pub number: u64,
    /// The document, of at most [`Report::MAX_REPORT_BYTES`].
    pub document: Document,
}

impl Report {
    /// The largest document of a report: a batch of thousands stays small.
    pub const MAX_REPORT_BYTES: usize = 4096;
}

/// Request to adopt a store after it was restored or has lost data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adopt {
    /// 128 random bits for the store's new incarnation.
    pub entropy: u128,
    /// Grants continue above this epoch and above every epoch that the store can find.
    pub floor: Epoch,
}

/// Range of audit entries to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditRange {
    /// Only entries after this sequence number; zero for the oldest kept.
    pub after: u64,
    /// The maximum number of entries.
    pub limit: usize,
}

impl AuditRange {
    /// Starts at the oldest entry that is kept.
    pub const fn first(limit: usize) -> Self {
        Self { after: 0, limit }
    }
}

/// Checks that every backend makes before it sends anything.
pub mod check {
    use super::*;

    fn refused<T>(detail: String) -> Result<T, StoreError> {
        Err(StoreError::refused(Code::BadInput, detail))
    }

    fn batch<'a>(
        session: Option<&Session>,
        duties: impl ExactSizeIterator<Item = &'a DutyKey>,
    ) -> Result<(), StoreError> {
        length(duties.len())?;
        let mut seen = BTreeSet::new();
        for duty in duties {
            if let Some(Session { group, .. }) = session.filter(|of| of.group != duty.group) {
                return refused(format!("{duty} is not in the session's group {group}"));
            }
            if !seen.insert(duty) {
                return refused(format!("{duty} appears twice in one batch"));
            }
        }
        Ok(())
    }

    fn length(len: usize) -> Result<(), StoreError> {
        if len > MAX_BATCH {
            return refused(format!("the batch has {len} items; the limit is {MAX_BATCH}"));
        }
        Ok(())
    }

    /// Checks the requests of a claim.
    pub fn claim(session: &Session, wants: &[ClaimRequest]) -> Result<(), StoreError> {
        batch(Some(session), wants.iter().map(|want| &want.duty))
    }

    /// Checks the holds of a keep-alive. A hold of another session is reported lost, not refused,
    /// and duplicates are harmless.
    pub fn keep_alive(holds: &[Hold]) -> Result<(), StoreError> {
        length(holds.len())
    }

    /// Checks the holds of a release.
    pub fn release(session: &Session, holds: &[Hold]) -> Result<(), StoreError> {
        batch(Some(session), holds.iter().map(|hold| &hold.duty))
    }

    /// Checks the checkpoints of a commit.
    pub fn commit(session: &Session, commits: &[Commit]) -> Result<(), StoreError> {
        batch(Some(session), commits.iter().map(|commit| &commit.hold.duty))
    }

    /// Checks reports.
    pub fn report(session: &Session, reports: &[Report]) -> Result<(), StoreError> {
        let most = Report::MAX_REPORT_BYTES;
        for Report { hold, number, document } in reports {
            if *number == 0 || Version::new(*number).is_err() {
                return refused(format!("the report on {} has the number {number}", hold.duty));
            }
            let bytes = document.as_bytes().len();
            if bytes > most {
                let duty = &hold.duty;
                return refused(format!(
                    "the report on {duty} has {bytes} bytes; the limit is {most}"
                ));
            }
        }
        batch(Some(session), reports.iter().map(|report| &report.hold.duty))
    }

    /// Checks the duties to forget.
    pub fn forget(duties: &[DutyKey]) -> Result<(), StoreError> {
        batch(None, duties.iter())
    }

    /// Checks an adoption: a floor at the end of the range would leave no epoch to grant.
    pub fn adopt(adopt: &Adopt) -> Result<(), StoreError> {
        adopt.floor.next().map(|_| ())
    }

    /// Checks the duties of a load.
    pub fn load(duties: &[DutyKey]) -> Result<(), StoreError> {
        batch(None, duties.iter())
    }
}
