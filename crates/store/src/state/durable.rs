//! The part of a group that outlives the process, in its stored form.

use std::collections::{BTreeMap, VecDeque};

use tenure_core::store::{AuditEntry, AuditKind, Checkpoint, DutyReport, GroupDocument};
use tenure_core::{
    Code, Document, DutyId, DutyKey, Epoch, GroupName, InstanceId, LocalInstant, Nonce, Note,
    StoreError, StoreResult, Version,
};
use tenure_wire::cursor::InvalidCursorFile;
use tenure_wire::folder::{self, AuditLine, Grant, GroupFile, ReportRow};

use super::{GroupRows, HoldRow, SessionRow, StoreState};

/// Time for which a spent nonce is remembered: a week and a day.
const SPENT_MS: u64 = 8 * 24 * 60 * 60 * 1000;

fn broken(error: impl std::fmt::Display) -> InvalidCursorFile {
    InvalidCursorFile(format!("has an invalid value: {error}"))
}

/// An audit entry as a line.
pub(crate) fn line(entry: &AuditEntry) -> AuditLine {
    AuditLine {
        seq: entry.seq,
        unix_ms: entry.unix_ms,
        kind: entry.kind.as_str().to_owned(),
        instance: entry.instance.as_str().to_owned(),
        duty: entry.duty.as_ref().map(|duty| duty.id.as_str().to_owned()),
        epoch: entry.epoch.map(Epoch::get),
        reason: entry.reason.clone(),
    }
}

/// A line as an audit entry of its group.
pub(crate) fn entry(group: &GroupName, line: AuditLine) -> StoreResult<AuditEntry> {
    let unknown =
        || StoreError::refused(Code::Damaged, format!("unknown audit entry kind {:?}", line.kind));
    let duty = line.duty.map(|id| {
        let id = DutyId::new(id)?;
        Ok::<_, StoreError>(DutyKey { group: group.clone(), id })
    });
    Ok(AuditEntry {
        seq: line.seq,
        unix_ms: line.unix_ms,
        kind: AuditKind::parse(&line.kind).ok_or_else(unknown)?,
        instance: InstanceId::new(line.instance)?,
        duty: duty.transpose()?,
        epoch: line.epoch.map(Epoch::new).transpose()?,
        reason: line.reason,
    })
}

impl StoreState {
    /// A copy of one group, to try a step on.
    pub(crate) fn only(&mut self, name: &GroupName) -> Self {
        let group = self.group(name).clone();
        Self {
            groups: BTreeMap::from([(name.clone(), group)]),
            floor: self.floor,
            retention: self.retention,
            unix_ms: self.unix_ms,
        }
    }
}

impl StoreState {
    /// A copy of everything, to try a step on.
    pub(crate) fn copy(&self) -> Self {
        Self {
            groups: self.groups.clone(),
            floor: self.floor,
            retention: self.retention,
            unix_ms: self.unix_ms,
        }
    }
}

impl GroupRows {
    /// The newest epoch that was granted for a duty.
    pub(crate) fn granted(&self, id: &DutyId) -> Epoch {
        self.holds.get(id).map_or(Epoch::ZERO, |row| row.epoch)
    }

    /// Adds a row for a duty that has neither a grant nor a readable checkpoint.
    pub(crate) fn stand_in(&mut self, id: &DutyId) {
        if !self.holds.contains_key(id) && !self.checkpoints.contains_key(id) {
            let instance = InstanceId::new("unknown");
            // A word without control characters is a valid instance id.
            let Ok(instance) = instance else { return };
            let (epoch, nonce) = (Epoch::ZERO, Nonce::from_entropy(0));
            self.holds.insert(id.clone(), HoldRow { epoch, instance, nonce, held: false });
        }
    }

    /// Returns a value that each step on durable state changes: such a step adds an audit entry, a
    /// new version of the group's document, or a report.
    pub(crate) fn durable_mark(&self) -> (u64, Version, u64) {
        (self.last_seq, self.document.version, self.reported)
    }

    /// Records the newest checkpoint without its document, which is in the cursor file.
    pub(crate) fn note_checkpoint(&mut self, id: &DutyId, newest: Option<Checkpoint>) {
        match newest {
            Some(newest) => self.checkpoints.insert(id.clone(), VecDeque::from([newest])),
            None => self.checkpoints.remove(id),
        };
    }

    /// Exports the durable state. Sessions are not part of it: they end with the process.
    pub(crate) fn export(&self, name: &GroupName, unix_ms: u64) -> GroupFile {
        let grant = |(id, row): (&DutyId, &HoldRow)| Grant {
            id: id.as_str().to_owned(),
            epoch: row.epoch.get(),
            instance: row.instance.as_str().to_owned(),
            nonce: row.nonce.to_string(),
            held: row.held,
        };
        let report = |(id, report): (&DutyId, &DutyReport)| ReportRow {
            id: id.as_str().to_owned(),
            epoch: report.epoch.get(),
            number: report.number,
            instance: report.instance.as_str().to_owned(),
            document_base64: folder::to_base64(report.document.as_bytes()),
            unix_ms: report.unix_ms,
        };
        let fresh = |spent: &&u64| **spent + SPENT_MS > unix_ms;
        let spent = self.spent.iter().filter(|(_, at)| fresh(at));
        let evicted = self.sessions.iter().filter(|(_, row)| row.evicted);
        GroupFile {
            group: name.as_str().to_owned(),
            floor: self.floor.get(),
            duties: self.holds.iter().map(grant).collect(),
            spent: spent.map(|(nonce, at)| (nonce.to_string(), *at)).collect(),
            evicted: evicted.map(|(instance, _)| instance.as_str().to_owned()).collect(),
            document_version: self.document.version.get(),
            document_base64: folder::to_base64(self.document.document.as_bytes()),
            reports: self.reports.iter().map(report).collect(),
            last_seq: self.last_seq,
            audit: self.audit.iter().map(line).collect(),
            ..GroupFile::default()
        }
    }

    /// Imports the durable state, without live sessions.
    pub(crate) fn import(file: &GroupFile) -> Result<(GroupName, Self), InvalidCursorFile> {
        let name = GroupName::new(file.group.clone()).map_err(broken)?;
        let mut group = Self {
            floor: Epoch::new(file.floor).map_err(broken)?,
            last_seq: file.last_seq,
            ..Self::default()
        };
        for grant in &file.duties {
            let row = HoldRow {
                epoch: Epoch::new(grant.epoch).map_err(broken)?,
                instance: InstanceId::new(grant.instance.clone()).map_err(broken)?,
                nonce: Nonce::parse(&grant.nonce).map_err(broken)?,
                held: grant.held,
            };
            group.holds.insert(DutyId::new(grant.id.clone()).map_err(broken)?, row);
        }
        for row in &file.reports {
            let document = folder::from_base64(&row.document_base64)?;
            let report = DutyReport {
                epoch: Epoch::new(row.epoch).map_err(broken)?,
                number: row.number,
                instance: InstanceId::new(row.instance.clone()).map_err(broken)?,
                document: Document::new(document).map_err(broken)?,
                unix_ms: row.unix_ms,
            };
            group.reports.insert(DutyId::new(row.id.clone()).map_err(broken)?, report);
        }
        for (nonce, at) in &file.spent {
            group.spent.insert(Nonce::parse(nonce).map_err(broken)?, *at);
        }
        for instance in &file.evicted {
            let instance = InstanceId::new(instance.clone()).map_err(broken)?;
            group.sessions.insert(instance, SessionRow::barred(LocalInstant::from_nanos(0)));
        }
        let document = folder::from_base64(&file.document_base64)?;
        group.document = GroupDocument {
            version: Version::new(file.document_version).map_err(broken)?,
            document: Document::from_store(document).map_err(broken)?,
        };
        let entries = file.audit.iter().cloned().map(|line| entry(&name, line));
        group.audit = entries.collect::<Result<_, _>>().map_err(broken)?;
        Ok((name, group))
    }
}

impl SessionRow {
    /// Returns the row of an evicted instance without a session.
    pub(super) fn barred(expires: LocalInstant) -> Self {
        let nonce = Nonce::from_entropy(0);
        Self { nonce, note: Note::default(), expires, left: 0, evicted: true }
    }
}

/// Converts the texts of a file to duty ids.
pub(crate) fn by_duty<T: Clone>(
    pairs: &[(String, T)],
) -> Result<BTreeMap<DutyId, T>, InvalidCursorFile> {
    let pair = |(id, value): &(String, T)| Ok((DutyId::new(id.clone())?, value.clone()));
    pairs.iter().map(pair).collect::<StoreResult<_>>().map_err(broken)
}
