//! The audit trail of a group: lines in a file, and the newest entries in the group's own file.
//!
//! An entry is first written in one step with the change that it records. Only durable entries are
//! appended as lines. So the trail contains exactly what happened, and an entry costs no write of
//! its own.

use tenure_core::store::{AuditEntry, AuditRange};
use tenure_core::{Code, GroupName, StoreResult};
use tenure_wire::folder::{self, AuditLine};

use super::writer::{DiskResult as _, FileWriter, damaged};
use crate::state::{GroupRows, durable};

/// Number of durable entries in the group's own file at which they are appended as lines.
const TAIL_ENTRIES: usize = 64;

/// Size limit of a file that is read.
pub(super) const MAX_AUDIT_FILE_BYTES: usize = 1 << 30;

/// The complete lines of an audit file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AuditFile {
    bytes: u64,
    lines: usize,
    last_seq: u64,
}

impl FileWriter {
    /// Returns the number of the newest entry that is a line.
    pub(super) fn flushed(&self, name: &GroupName) -> u64 {
        let trail = self.rooms.get(name).and_then(|room| room.trail);
        trail.map_or(0, |trail| trail.last_seq)
    }

    fn read_lines(&self, name: &GroupName) -> StoreResult<(Vec<AuditLine>, u64, bool)> {
        let path = self.paths.audit(name);
        if self.disk.stamp(&path).at(&path)?.is_none() {
            return Ok((Vec::new(), 0, true));
        }
        let bytes = self.disk.read(&path, MAX_AUDIT_FILE_BYTES).at(&path)?;
        let (lines, whole) = folder::read_lines(&bytes);
        Ok((lines, whole as u64, whole == bytes.len()))
    }

    /// Reads the audit file for the first time. Entries whose lines a crash tore are still in the
    /// group's own file. If some are in neither, the file is damaged and is set aside.
    fn look(&mut self, name: &GroupName, group: &GroupRows) -> StoreResult<AuditFile> {
        if let Some(trail) = self.rooms.get(name).and_then(|room| room.trail) {
            return Ok(trail);
        }
        let (lines, bytes, whole) = self.read_lines(name)?;
        let last_seq = lines.last().map_or(0, |line| line.seq);
        let first_kept = group.audit.front().map_or(group.last_seq + 1, |entry| entry.seq);
        if !whole && last_seq + 1 < first_kept {
            let path = self.paths.audit(name);
            let aside = self.rename_aside(&path)?;
            self.room(name).trail = Some(AuditFile::default());
            let what = format!("{} is damaged; kept as {}", path.display(), aside.display());
            return Err(damaged(what));
        }
        let trail = AuditFile { bytes, lines: lines.len(), last_seq };
        self.room(name).trail = Some(trail);
        Ok(trail)
    }

    /// Appends the durable entries as lines, once there are enough of them.
    pub(super) fn flush(&mut self, name: &GroupName, group: &GroupRows) -> StoreResult<()> {
        let durable_seq = self.room(name).durable_seq;
        let is_durable = |entry: &&AuditEntry| entry.seq <= durable_seq;
        if group.audit.iter().filter(is_durable).count() < TAIL_ENTRIES {
            return Ok(());
        }
        let trail = match self.look(name, group) {
            // It was set aside: a new file begins, and the next reader gets the error.
            Err(error) if error.code() == Code::Damaged => {
                let trail = self.look(name, group)?;
                self.room(name).damage = Some(error);
                trail
            }
            looked => looked?,
        };
        let entries = group.audit.iter().filter(is_durable);
        let lines: Vec<_> =
            entries.filter(|entry| entry.seq > trail.last_seq).map(durable::line).collect();
        let Some(last) = lines.last() else { return Ok(()) };
        let path = self.paths.audit(name);
        let bytes = folder::write_lines(&lines);
        let access = self.access(&path)?;
        let appended = self.disk.append(&path, trail.bytes, &bytes, access);
        // An error loses nothing: the entries stay in the group's file until they are lines.
        let synced = appended.and_then(|()| self.disk.sync(&path));
        synced.at(&path)?;
        if trail.bytes == 0 {
            let folder = self.paths.folder();
            self.disk.sync_folder(&folder).at(&folder)?;
        }
        self.room(name).trail = Some(AuditFile {
            bytes: trail.bytes + bytes.len() as u64,
            lines: trail.lines + lines.len(),
            last_seq: last.seq,
        });
        self.trim(name)
    }

    /// Trims the file once it exceeds the number of lines to keep by a quarter.
    fn trim(&mut self, name: &GroupName) -> StoreResult<()> {
        let kept = usize::try_from(self.store.audit_kept).unwrap_or(usize::MAX);
        let Some(trail) = self.room(name).trail else { return Ok(()) };
        if trail.lines <= kept.saturating_add(kept / 4) {
            return Ok(());
        }
        let (lines, ..) = self.read_lines(name)?;
        let newest = &lines[lines.len().saturating_sub(kept)..];
        let bytes = folder::write_lines(newest);
        // The group's state is written later; until then the old and the new file are both valid.
        let path = self.paths.audit(name);
        self.write_file(&path, &bytes)?;
        let (bytes, lines) = (bytes.len() as u64, newest.len());
        self.room(name).trail = Some(AuditFile { bytes, lines, ..trail });
        Ok(())
    }

    /// Returns a part of the trail, oldest first.
    pub(super) fn audit(
        &mut self,
        name: &GroupName,
        range: AuditRange,
    ) -> StoreResult<Vec<AuditEntry>> {
        let group = self.live.step(|state, _| state.group(name).clone());
        let mut entries = Vec::new();
        if self.lock.is_some() {
            if let Some(damage) = self.room(name).damage.take() {
                return Err(damage);
            }
            let trail = self.look(name, &group)?;
            let (lines, ..) = self.read_lines(name)?;
            let wanted = lines.into_iter().filter(|line| line.seq > range.after);
            let wanted = wanted.filter(|line| line.seq <= trail.last_seq).take(range.limit);
            for line in wanted {
                entries.push(durable::entry(name, line)?);
            }
        }
        let after = self.flushed(name).max(range.after);
        let newest = group.audit.into_iter().filter(|entry| entry.seq > after);
        entries.extend(newest.take(range.limit - entries.len()));
        Ok(entries)
    }
}
