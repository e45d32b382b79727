//! Cursor files: validated when read, replaced in a crash-safe order.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use tenure_core::store::{Checkpoint, Commit, Committed};
use tenure_core::{
    Code, Document, DutyKey, Epoch, InstanceId, LocalInstant, Session, StoreError, StoreResult,
    Version,
};
use tenure_wire::cursor::{self, CursorFile, InvalidCursorFile};

use super::disk::Stamp;
use super::paths::FilePaths;
use super::writer::{DiskResult as _, FileWriter, damaged, refused};

/// Instance recorded for a cursor file that names no writer.
const PLAIN_WRITER: &str = "v1";

impl FileWriter {
    /// Reads the newest checkpoint of a duty from its cursor file.
    pub(super) fn read(&mut self, duty: &DutyKey) -> StoreResult<Option<Checkpoint>> {
        let path = self.paths.cursor(duty);
        let Some(stamp) = self.disk.stamp(&path).at(&path)? else {
            self.absent(duty, &path)?;
            return Ok(None);
        };
        let checkpoint = match self.parse(&path)? {
            Ok(CursorFile::Ours(of, found)) if of == *duty => self.put_back(duty, found)?,
            Ok(CursorFile::Ours(of, _)) => {
                let path = path.display();
                return Err(damaged(format!("{path} is the cursor of {of}, not of {duty}")));
            }
            Ok(CursorFile::Plain(document)) => {
                let (instance, unix_ms) = (InstanceId::new(PLAIN_WRITER)?, stamp.unix_ms());
                let (version, epoch) = Default::default();
                let found = Checkpoint { version, epoch, instance, document, unix_ms };
                self.import(duty, found)?
            }
            Err(InvalidCursorFile(why)) => return Err(self.put_aside(duty, &path, &why)?),
        };
        self.note(duty, &checkpoint, stamp);
        Ok(Some(checkpoint))
    }

    /// Reads a file. The inner error is for invalid content, the outer one for a failed read.
    fn parse(&self, path: &Path) -> StoreResult<Result<CursorFile, InvalidCursorFile>> {
        match self.disk.read(path, cursor::MAX_CURSOR_FILE_BYTES) {
            Ok(bytes) => Ok(cursor::read(&bytes)),
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                Ok(Err(InvalidCursorFile("exceeds the maximum size of a cursor file".to_owned())))
            }
            Err(error) if error.kind() == ErrorKind::IsADirectory => {
                Err(damaged(format!("{} is a folder", path.display())))
            }
            Err(error) => Err(refused(&error, path)),
        }
    }

    /// Reads the cursor file again if it has changed since it was last read.
    pub(super) fn refresh(&mut self, duty: &DutyKey) -> StoreResult<()> {
        let path = self.paths.cursor(duty);
        let stamp = self.disk.stamp(&path).at(&path)?;
        let known = self.rooms.get(&duty.group).and_then(|room| room.stamps.get(&duty.id));
        if stamp.is_some() && stamp.as_ref() == known {
            return Ok(());
        }
        self.read(duty).map(drop)
    }

    /// Like `refresh`, for a call that needs no cursor: leaves a damaged one to the calls that do.
    pub(super) fn refresh_if_whole(&mut self, duty: &DutyKey) -> StoreResult<()> {
        match self.refresh(duty) {
            Err(error) if error.code() == Code::Damaged => Ok(()),
            refreshed => refreshed,
        }
    }

    fn note(&mut self, duty: &DutyKey, found: &Checkpoint, stamp: Stamp) {
        let newest = Checkpoint { document: Document::default(), ..found.clone() };
        self.live.step(|state, _| state.group(&duty.group).note_checkpoint(&duty.id, Some(newest)));
        let writes = self.lock.is_some();
        let room = self.room(&duty.group);
        room.stamps.insert(duty.id.clone(), stamp);
        room.aside.remove(&duty.id);
        if writes {
            // Counted only under the lock: a count must be stored to stay valid.
            let version = room.versions.entry(duty.id.clone()).or_default();
            *version = found.version.max(*version);
        }
        if writes && !room.saved && found.epoch > Epoch::ZERO {
            let stem = FilePaths::stem(&duty.group);
            let what = format!(
                "{} records epoch {}, but {} is missing, and with it the epochs granted since; \
                 restore it, or run `tenure store adopt` with a floor above them",
                self.paths.cursor(duty).display(),
                found.epoch,
                self.paths.group(&stem).display()
            );
            self.lost.entry(stem).or_insert(what);
        }
    }

    /// Handles a missing cursor file. It is an error if there was one before: work that starts from
    /// nothing by mistake repeats everything.
    fn absent(&mut self, duty: &DutyKey, path: &Path) -> StoreResult<()> {
        self.live.step(|state, _| state.group(&duty.group).note_checkpoint(&duty.id, None));
        let room = self.room(&duty.group);
        room.stamps.remove(&duty.id);
        if let Some(aside) = room.aside.get(&duty.id) {
            let what = format!("{} was damaged and is kept as {aside}", path.display());
            return Err(damaged(format!("{what}; {}", self.advice(duty, path))));
        }
        let seen = room.versions.get(&duty.id).is_some_and(|version| *version > Version::ZERO);
        // The first checkpoint enters the history before the cursor file exists.
        let first = Version::ZERO.next()?;
        if seen || self.generations(duty)?.first().is_some_and(|newest| *newest > first) {
            let what = format!("{} is missing", path.display());
            return Err(damaged(format!("{what}; {}", self.advice(duty, path))));
        }
        Ok(())
    }

    /// Returns the advice for a cursor file that cannot be used.
    fn advice(&self, duty: &DutyKey, path: &Path) -> String {
        let newest = self.generations(duty).unwrap_or_default().first().copied();
        let newest = newest.map_or("the history has none".to_owned(), |version| {
            format!(
                "the newest in the history is {}",
                self.paths.generation(duty, version).display()
            )
        });
        let path = path.display();
        format!(
            "restore a valid file at {path} ({newest}), or discard the duty: `tenure forget {duty}`"
        )
    }

    /// Sets a damaged cursor file aside under another name, and records that.
    fn put_aside(&mut self, duty: &DutyKey, path: &Path, why: &str) -> StoreResult<StoreError> {
        self.live.step(|state, _| state.group(&duty.group).note_checkpoint(&duty.id, None));
        if self.lock.is_none() {
            return Ok(damaged(format!("{} {why}", path.display())));
        }
        let aside = self.free_aside(path)?;
        self.room(&duty.group).aside.insert(duty.id.clone(), aside.display().to_string());
        // Recorded first: after a crash in between, the file would look as if it had never existed.
        if self.ready(&duty.group).is_ok() {
            self.persist_as_is(&duty.group)?;
        }
        self.disk.rename(path, &aside).at(path)?;
        self.sync_parent(path)?;
        let (path_shown, aside) = (path.display(), aside.display());
        let advice = self.advice(duty, path);
        Ok(damaged(format!("{path_shown} {why}; it is kept as {aside}; {advice}")))
    }

    /// Accepts a file in our own format. If its version is older than the known ones, somebody put
    /// it back: then it becomes the newest checkpoint, as a plain file does. Counting on from its
    /// own version would reuse a version and overwrite its entry in the history.
    fn put_back(&mut self, duty: &DutyKey, found: Checkpoint) -> StoreResult<Checkpoint> {
        let newest = self.generations(duty)?.first().copied().unwrap_or_default();
        if found.version < newest.max(self.seen(duty)) {
            return self.import(duty, found);
        }
        if found.version > newest && self.lock.is_some() {
            // The process ended before it could note that this version was stored.
            self.keep_generation(duty, found.version);
        }
        Ok(found)
    }

    fn seen(&self, duty: &DutyKey) -> Version {
        let seen = self.rooms.get(&duty.group).and_then(|room| room.versions.get(&duty.id));
        seen.copied().unwrap_or_default()
    }

    /// Imports a file from outside as the newest checkpoint, whatever was stored before. It enters
    /// the history at once, so that its version stays the same.
    fn import(&mut self, duty: &DutyKey, found: Checkpoint) -> StoreResult<Checkpoint> {
        let newest = match self.generations(duty)?.first() {
            Some(version) => Some(self.generation(duty, *version)?),
            None => None,
        };
        let seen = self.seen(duty);
        // The writer of a plain file is unknown, so its modification time means nothing.
        let same = |newest: &Checkpoint| {
            newest.instance == found.instance
                && newest.document == found.document
                && (newest.unix_ms == found.unix_ms || found.instance.as_str() == PLAIN_WRITER)
                && newest.version >= seen
        };
        if let Some(newest) = newest.as_ref().filter(|newest| same(newest)) {
            return Ok(newest.clone());
        }
        let granted = self.live.step(|state, _| state.group(&duty.group).granted(&duty.id));
        let epoch = newest.map_or_else(Default::default, |newest| newest.epoch);
        let counted = self.pending(duty)?.max(seen).max(found.version);
        let checkpoint = Checkpoint {
            version: counted.next()?,
            epoch: epoch.max(granted).max(found.epoch),
            ..found
        };
        if self.lock.is_some() {
            self.write_generation(duty, &checkpoint, FilePaths::generation)?;
        }
        Ok(checkpoint)
    }

    /// The versions in the history of a duty, newest first.
    pub(super) fn generations(&self, duty: &DutyKey) -> StoreResult<Vec<Version>> {
        self.versions(duty, FilePaths::is_generation)
    }

    /// Returns the newest version in the history of a duty, even if it may not have been stored.
    fn pending(&self, duty: &DutyKey) -> StoreResult<Version> {
        let pending = self.versions(duty, FilePaths::is_pending)?;
        let stored = self.generations(duty)?;
        Ok(pending.into_iter().chain(stored).max().unwrap_or_default())
    }

    fn versions(
        &self,
        duty: &DutyKey,
        is: impl Fn(&str) -> Option<Version>,
    ) -> StoreResult<Vec<Version>> {
        let folder = self.paths.history(duty);
        let names = self.disk.list(&folder).at(&folder)?;
        let mut versions: Vec<_> = names.iter().filter_map(|name| is(name)).collect();
        versions.sort_by(|a, b| b.cmp(a));
        Ok(versions)
    }

    fn generation(&self, duty: &DutyKey, version: Version) -> StoreResult<Checkpoint> {
        let path = self.paths.generation(duty, version);
        match self.parse(&path)? {
            Ok(CursorFile::Ours(of, checkpoint))
                if of == *duty && checkpoint.version == version =>
            {
                Ok(checkpoint)
            }
            Err(InvalidCursorFile(why)) => Err(damaged(format!("{} {why}", path.display()))),
            _ => Err(damaged(format!("{} belongs to another checkpoint", path.display()))),
        }
    }

    /// Notes that a checkpoint was stored. If this fails, the next read notes it.
    fn keep_generation(&self, duty: &DutyKey, version: Version) {
        let (from, to) = (self.paths.pending(duty, version), self.paths.generation(duty, version));
        let _ = self.disk.rename(&from, &to);
    }

    fn write_generation(
        &mut self,
        duty: &DutyKey,
        of: &Checkpoint,
        name: impl Fn(&FilePaths, &DutyKey, Version) -> PathBuf,
    ) -> StoreResult<()> {
        let folder = self.paths.history(duty);
        if self.disk.stamp(&folder).at(&folder)?.is_none() {
            for folder in [self.paths.histories(), folder] {
                self.make_folder(&folder)?;
                self.sync_parent(&folder)?;
            }
        }
        let path = name(&self.paths, duty, of.version);
        self.write_file(&path, &cursor::write(duty, of))
    }

    /// Returns the checkpoints of a duty, newest first; while the cursor is damaged, earlier ones.
    pub(super) fn history(&mut self, duty: &DutyKey) -> StoreResult<Vec<Checkpoint>> {
        let mut versions = self.generations(duty)?;
        let newest = match self.read(duty) {
            Ok(None) => return Ok(Vec::new()),
            Ok(newest) => newest,
            Err(error) if error.code() == Code::Damaged && !versions.is_empty() => None,
            Err(error) => return Err(error),
        };
        if let Some(newest) = &newest {
            // A newer entry was still being stored when the process ended.
            versions.retain(|version| *version < newest.version);
        }
        let slots = self.live.step(|state, _| state.retention.history_slots);
        versions.truncate(slots - usize::from(newest.is_some()));
        let mut history: Vec<_> = newest.into_iter().collect();
        for version in versions {
            history.push(self.generation(duty, version)?);
        }
        Ok(history)
    }

    /// Stores checkpoints one after the other; a batch is not atomic.
    pub(super) fn commit(
        &mut self,
        session: &Session,
        commits: &[Commit],
    ) -> StoreResult<Vec<Committed>> {
        self.prepare()?;
        self.ready(&session.group)?;
        for commit in commits {
            self.refresh(&commit.hold.duty)?;
        }
        // Nobody can claim a duty while this call has the writer, so the decision stays valid.
        let judge = |state: &mut crate::state::StoreState, now: LocalInstant| {
            let group = state.group(&session.group);
            let judge = |commit: &Commit| {
                let committed = group.judge(session, commit, now)?;
                let Committed::Saved(version) = committed else { return Ok((committed, None)) };
                Ok((committed, Some(group.checkpoint(commit, version, now))))
            };
            commits.iter().map(judge).collect::<StoreResult<Vec<_>>>()
        };
        let judged = self.live.step(judge)?;
        let (mut answers, mut stored) = (Vec::new(), false);
        for (commit, (answer, checkpoint)) in commits.iter().zip(judged) {
            if let Some(checkpoint) = checkpoint {
                let saved = self.save(&commit.hold.duty, &checkpoint);
                saved.map_err(|error| if stored { error.or_happened() } else { error })?;
                stored = true;
            }
            answers.push(answer);
        }
        Ok(answers)
    }

    /// Replaces a cursor file. The old checkpoint and the new one enter the history first, so that
    /// a stored version is never reused, even if somebody else overwrites the cursor file. Until
    /// the new one is stored, its entry has another name. This distinguishes it from a stored
    /// version whose predecessor was put back.
    fn save(&mut self, duty: &DutyKey, new: &Checkpoint) -> StoreResult<()> {
        let path = self.paths.cursor(duty);
        let before = Version::new(new.version.get() - 1)?;
        if before > Version::ZERO {
            let kept = self.paths.generation(duty, before);
            let found = self.disk.stamp(&kept).at(&kept)?;
            if found.is_none()
                && let Some(old) = self.read(duty)?
            {
                self.write_generation(duty, &old, FilePaths::generation)?;
            }
        }
        // Nothing has happened until the cursor file is replaced, whatever the history contains.
        let unhappened = |error: StoreError| StoreError::Refused(error.problem().clone());
        self.write_generation(duty, new, FilePaths::pending).map_err(unhappened)?;
        self.write_file(&path, &cursor::write(duty, new))?;
        self.keep_generation(duty, new.version);
        let stamp = self.disk.stamp(&path).ok().flatten();
        let first = !self.room(&duty.group).versions.contains_key(&duty.id);
        if let Some(stamp) = stamp {
            self.note(duty, new, stamp);
        }
        if first {
            // Stored so that a later removal of the cursor file is noticed. The commit has
            // happened; if this write fails, the next grant repeats it.
            let _ = self.persist_as_is(&duty.group);
        }
        let slots = self.live.step(|state, _| state.retention.history_slots) as u64;
        if let Some(old) = new.version.get().checked_sub(slots).filter(|old| *old > 0) {
            // An entry that is not removed only takes space.
            let _ = self.disk.remove(&self.paths.generation(duty, Version::new(old)?));
        }
        Ok(())
    }
}
