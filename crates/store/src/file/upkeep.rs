//! Retention, forgetting duties and adopting a store.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use tenure_core::store::{Adopt, Adopted, Forgotten, Retention};
use tenure_core::{DutyId, DutyKey, GroupName, Reason, StoreError, StoreResult};
use tenure_wire::cursor::{self, CursorFile};
use tenure_wire::folder::StoreFile;

use super::boot::in_memory;
use super::paths::FilePaths;
use super::writer::{DiskResult as _, FileWriter, refused};

impl FileWriter {
    /// Forgets duties: first in the stored state, with the floor of the group, then by removing
    /// files. Files left by a crash are removed when the store is next opened.
    pub(super) fn forget(
        &mut self,
        duties: &[DutyKey],
        reason: &Reason,
    ) -> StoreResult<Vec<Forgotten>> {
        self.prepare()?;
        let mut by_group: BTreeMap<&GroupName, Vec<usize>> = BTreeMap::new();
        for (n, duty) in duties.iter().enumerate() {
            self.ready(&duty.group)?;
            self.refresh_if_whole(duty)?;
            by_group.entry(&duty.group).or_default().push(n);
        }
        let (mut answers, mut some) = (vec![Forgotten::Absent; duties.len()], false);
        for (group, at) in by_group {
            let wanted: Vec<&DutyKey> = at.iter().map(|n| &duties[*n]).collect();
            let forgotten = self.forget_in(group, &wanted, reason);
            let forgotten =
                forgotten.map_err(|error| if some { error.or_happened() } else { error })?;
            some |= forgotten.iter().any(|it| matches!(it, Forgotten::Forgotten { .. }));
            for (n, answer) in at.into_iter().zip(forgotten) {
                answers[n] = answer;
            }
        }
        Ok(answers)
    }

    fn forget_in(
        &mut self,
        group: &GroupName,
        duties: &[&DutyKey],
        reason: &Reason,
    ) -> StoreResult<Vec<Forgotten>> {
        // A duty known only by a damaged file can be forgotten, too.
        for duty in duties {
            self.stand_in(duty);
        }
        let (mut trial, now) = self.live.step(|state, now| (state.only(group), now));
        let unix_ms = trial.unix_ms;
        let tried: Vec<_> = duties.iter().map(|duty| trial.forget(duty, reason, now)).collect();
        let gone: Vec<&DutyKey> = duties
            .iter()
            .zip(&tried)
            .filter(|(_, answer)| matches!(answer, Forgotten::Forgotten { .. }))
            .map(|(duty, _)| *duty)
            .collect();
        if gone.is_empty() {
            return Ok(tried);
        }
        let room = self.room(group);
        let before = (room.versions.clone(), room.aside.clone());
        for duty in &gone {
            room.forgotten.insert(duty.id.clone());
            room.versions.remove(&duty.id);
            room.aside.remove(&duty.id);
        }
        let written = self.persist(group, trial.group(group), unix_ms.unwrap_or_default());
        if let Err(error) = written {
            let room = self.room(group);
            for duty in &gone {
                room.forgotten.remove(&duty.id);
            }
            (room.versions, room.aside) = before;
            return Err(error);
        }
        self.live.step(|state, _| {
            state.unix_ms = unix_ms;
            duties.iter().for_each(|duty| drop(state.forget(duty, reason, now)));
        });
        self.remove_files(&gone).map_err(StoreError::or_happened)?;
        // Stores that the files are gone: one that somebody puts back from now on must stay. If
        // this fails, the next write stores it.
        let _ = self.persist_as_is(group);
        Ok(tried)
    }

    fn stand_in(&mut self, duty: &DutyKey) {
        let room = self.room(&duty.group);
        if room.aside.contains_key(&duty.id) || room.versions.contains_key(&duty.id) {
            self.live.step(|state, _| state.group(&duty.group).stand_in(&duty.id));
        }
    }

    fn is_there(&self, folder: &Path) -> StoreResult<bool> {
        let found = self.disk.stamp(folder).at(folder)?;
        Ok(found.is_some())
    }

    /// Removes the files of duties that the state no longer knows.
    fn remove_files(&mut self, duties: &[&DutyKey]) -> StoreResult<()> {
        for duty in duties {
            let path = self.paths.cursor(duty);
            self.disk.remove(&path).at(&path)?;
        }
        let path = self.paths.path().to_owned();
        self.sync_parent(&path)?;
        self.remove_histories(duties)
    }

    fn remove_histories(&mut self, duties: &[&DutyKey]) -> StoreResult<()> {
        for duty in duties {
            let folder = self.paths.history(duty);
            let names = self.disk.list(&folder).at(&folder)?;
            for name in &names {
                let path = folder.join(name);
                self.disk.remove(&path).at(&path)?;
            }
            // The state lists the duty as forgotten until the removal is durable. Otherwise the
            // files could reappear and be taken for the history of a new duty of that name. An
            // earlier process may have removed them without making that durable.
            if self.is_there(&folder)? {
                self.sync_parent(&folder.join("any"))?;
                self.disk.remove_folder(&folder).at(&folder)?;
            }
            if self.is_there(&self.paths.histories())? {
                self.sync_parent(&folder)?;
            }
            let room = self.room(&duty.group);
            room.stamps.remove(&duty.id);
            room.forgotten.remove(&duty.id);
        }
        Ok(())
    }

    /// Removes files that a crash or an error left of forgotten duties, before one of them can be
    /// granted again. A cursor file that somebody put there since stays. The history is removed,
    /// because it would be taken for that of the new duty.
    pub(super) fn finish_forgetting(&mut self) -> StoreResult<()> {
        let rooms = self.rooms.iter();
        let forgotten: Vec<DutyKey> = rooms
            .flat_map(|(group, room)| {
                let duty = |id: &DutyId| DutyKey { group: group.clone(), id: id.clone() };
                room.forgotten.iter().map(duty).collect::<Vec<_>>()
            })
            .collect();
        for duty in &forgotten {
            let path = self.paths.cursor(duty);
            let floor = self.live.step(|state, _| state.group(&duty.group).floor);
            let old = match self.disk.read(&path, cursor::MAX_CURSOR_FILE_BYTES) {
                Ok(bytes) => matches!(
                    cursor::read(&bytes),
                    Ok(CursorFile::Ours(of, checkpoint)) if of == *duty && checkpoint.epoch <= floor
                ),
                Err(error) => match error.kind() {
                    ErrorKind::NotFound => true,
                    ErrorKind::InvalidData | ErrorKind::IsADirectory => false,
                    _ => return Err(refused(&error, &path)),
                },
            };
            let removed =
                if old { self.remove_files(&[duty]) } else { self.remove_histories(&[duty]) };
            removed?;
            // Versions counted since then on top of the old ones are counted anew.
            self.room(&duty.group).versions.remove(&duty.id);
            let _ = self.persist_as_is(&duty.group);
        }
        Ok(())
    }

    /// Adopts the store by replacing one file, in one step.
    pub(super) fn adopt(&mut self, adopt: &Adopt) -> StoreResult<Adopted> {
        self.prepare()?;
        let groups = self.live.step(|state, _| state.groups.keys().cloned().collect::<Vec<_>>());
        for group in &groups {
            for duty in self.duties(group) {
                self.refresh_if_whole(&duty)?;
            }
        }
        let (mut trial, now) = self.live.step(|state, now| (state.copy(), now));
        let adopted = trial.adopt(adopt, now);
        self.persist_store(StoreFile {
            incarnation: adopted.incarnation.clone(),
            floor: adopted.floor.get(),
            ..self.store.clone()
        })?;
        self.live.step(|state, _| drop(state.adopt(adopt, now)));
        // Groups whose state was lost continue from the floor.
        for group in groups {
            if self.lost.contains_key(&FilePaths::stem(&group)) {
                self.persist_as_is(&group).map_err(StoreError::or_happened)?;
                self.lost.remove(&FilePaths::stem(&group));
            }
        }
        self.lost.clear();
        Ok(adopted)
    }

    /// Returns the retention stored in the file.
    pub(super) fn retention(&self) -> Retention {
        Retention {
            history_slots: self.store.history_slots as usize,
            audit_kept: self.store.audit_kept as usize,
        }
    }

    /// Changes the retention, and removes history beyond it.
    pub(super) fn retain(&mut self, retention: Retention) -> StoreResult<()> {
        self.prepare()?;
        self.persist_store(StoreFile {
            history_slots: retention.history_slots as u64,
            audit_kept: retention.audit_kept as u64,
            ..self.store.clone()
        })?;
        self.live.step(|state, _| state.retain(in_memory(retention)));
        let groups = self.live.step(|state, _| state.groups.keys().cloned().collect::<Vec<_>>());
        for duty in groups.iter().flat_map(|group| self.duties(group)) {
            for old in
                self.generations(&duty).unwrap_or_default().drain(..).skip(retention.history_slots)
            {
                // The change has happened; a file that is not removed only takes space.
                let _ = self.disk.remove(&self.paths.generation(&duty, old));
            }
        }
        Ok(())
    }
}
