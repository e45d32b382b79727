//! Backups of a SQLite file, and their restoration.
//!
//! A backup is one snapshot, whatever is written meanwhile: its pages are copied inside one read
//! transaction. A restore replaces the file while no program has it open, which SQLite itself
//! confirms: only the last connection can leave the write-ahead log.

use std::error::Error as _;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use tenure_core::{Code, Epoch, StoreError, StoreResult};

use super::connect::{connect, retry};
use super::error::{open_error, statement_error};
use super::schema::{HISTORY, check_version, is_there};
use super::worker::{SqliteConnection, WritePriority};
use super::{boot, first, sql};
use crate::BootClock;
use crate::backup::{BackupContents, BackupProgress, ending, keep_free_name, unusable};
use crate::url::resolved;

/// Pages that are copied between two reports.
const PAGES_PER_STEP: i32 = 256;

/// Beginning of every database.
const HEADER: &[u8; 16] = b"SQLite format 3\0";

/// Files that belong to a database, besides the one that a clean shutdown leaves.
const SIDE_FILES: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Copies the store, which may be in use, to a new file.
pub(crate) fn back_up(path: &PathBuf, to: &Path, progress: BackupProgress<'_>) -> StoreResult<()> {
    let absent = || StoreError::refused(Code::Absent, path.display().to_string());
    if !path.exists() {
        return Err(absent());
    }
    let _share = boot::share(path)?;
    let source = connect(path).map_err(|error| open_error(path, error))?;
    if !is_there(&source, &HISTORY)? {
        return Err(absent());
    }
    let page_bytes: u64 = source
        .pragma_query_value(None, "page_size", |row| row.get::<_, i64>(0))
        .map_err(statement_error)?
        .unsigned_abs();
    // SQLite would create it with the mode that the umask allows.
    let created = File::options().write(true).create_new(true).mode(0o600).open(to);
    created.map_err(|error| unusable(to, &format!("it cannot be created: {error}")))?;
    let mut copy = Connection::open(to).map_err(statement_error)?;
    // The file is synced once, when it is whole.
    copy.pragma_update(None, "synchronous", "OFF").map_err(statement_error)?;
    let mut source = SqliteConnection::new(source, Arc::new(BootClock), WritePriority::Yielding);
    source.read(|db, _| {
        let backup = Backup::new(db, &mut copy).map_err(statement_error)?;
        loop {
            match backup.step(PAGES_PER_STEP).map_err(statement_error)? {
                StepResult::Done => return Ok(()),
                StepResult::More => {}
                _ => return Err(StoreError::refused(Code::Busy, "the copy is locked")),
            }
            let pages = backup.progress();
            let bytes = |pages: i32| u64::from(pages.unsigned_abs()) * page_bytes;
            progress(bytes(pages.pagecount - pages.remaining), bytes(pages.pagecount));
        }
    })?;
    drop(copy);
    seal(to)
}

/// Makes a database one durable file, without a log beside it.
pub(crate) fn seal(path: &Path) -> StoreResult<()> {
    // Threads that have just been told to end may still have it open.
    retry(|| leave_log(&Connection::open(path)?)).map_err(statement_error)?;
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(|error| unusable(path, &format!("it cannot be synced: {error}")))
}

/// Leaves the write-ahead log, which only the last connection can.
fn leave_log(connection: &Connection) -> rusqlite::Result<()> {
    let mode = |row: &rusqlite::Row<'_>| row.get::<_, String>(0);
    let mode = connection.pragma_update_and_check(None, "journal_mode", "DELETE", mode)?;
    if mode == "delete" {
        return Ok(());
    }
    Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY), None))
}

/// Checks a copy, which nobody else uses, and returns its content.
pub(crate) fn check(path: &Path) -> StoreResult<BackupContents> {
    let connection = Connection::open(path).map_err(statement_error)?;
    match is_there(&connection, &HISTORY) {
        Ok(true) => {}
        Ok(false) => return Err(unusable(path, "it has no tables of Tenure")),
        Err(error) => return Err(unusable(path, &error.problem().detail)),
    }
    check_version(&connection, &HISTORY)?;
    let damage: String = connection
        .pragma_query_value(None, "integrity_check", |row| row.get(0))
        .map_err(statement_error)?;
    if damage != "ok" {
        return Err(unusable(path, &format!("it is damaged: {damage}")));
    }
    let found: Option<(i64, i64, i64, i64, i64)> = first(&connection, sql!("backup/contents"), [])?;
    let (groups, duties, checkpoints, epoch, version) = found.unwrap_or_default();
    if version < 1 {
        return Err(unusable(path, &format!("a checkpoint in it has version {version}")));
    }
    Ok(BackupContents {
        groups: groups.unsigned_abs(),
        duties: duties.unsigned_abs(),
        checkpoints: checkpoints.unsigned_abs(),
        newest_epoch: Epoch::from_i64(epoch)?,
    })
}

/// Copies a backup to a new file, to be checked and adopted there.
pub(crate) fn stage(backup: &Path, to: &Path) -> StoreResult<()> {
    for side in SIDE_FILES.map(|side| ending(backup, side)) {
        if side.metadata().is_ok_and(|side| side.len() > 0) {
            let why = format!("{} is beside it: back the store up instead", side.display());
            return Err(unusable(backup, &why));
        }
    }
    let copy = || {
        let mut to = File::options().write(true).create_new(true).mode(0o600).open(to)?;
        io::copy(&mut File::open(backup)?, &mut to)
    };
    copy().map(drop).map_err(|error| unusable(backup, &format!("it cannot be copied: {error}")))
}

/// The file that a restore replaces. Nobody else can open it until this is dropped.
pub(crate) struct SqliteTarget {
    path: PathBuf,
    /// Largest epoch of the store before, as far as it is known.
    pub(crate) floor: Epoch,
    /// The store before, locked. `None` if there is none, or if it is damaged.
    _old: Option<Connection>,
    _lock: File,
}

impl SqliteTarget {
    /// Locks the file; refused while any program has it open.
    pub(crate) fn lock(path: &Path) -> StoreResult<Self> {
        let lock = boot::exclude_others(path)?;
        // SQLite follows links, too.
        let path = resolved(path);
        let mut target = Self { path, floor: Epoch::ZERO, _old: None, _lock: lock };
        if target.path.exists() && target.is_database()? {
            match target.lock_old() {
                Ok((old, floor)) => (target._old, target.floor) = (Some(old), floor),
                // SQLite itself has found it damaged: the error for another program's database has
                // no cause.
                Err(error) if error.code() == Code::Damaged && error.source().is_some() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(target)
    }

    /// Whether the file begins like a database. Otherwise SQLite would empty its log.
    fn is_database(&self) -> StoreResult<bool> {
        let mut start = [0; HEADER.len()];
        match File::open(&self.path).and_then(|mut file| file.read_exact(&mut start)) {
            Ok(()) => Ok(start == *HEADER),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(unusable(&self.path, &format!("it cannot be read: {error}"))),
        }
    }

    fn lock_old(&self) -> StoreResult<(Connection, Epoch)> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let old = Connection::open_with_flags(&self.path, flags);
        let old = old.map_err(|error| open_error(&self.path, error))?;
        is_there(&old, &HISTORY)?;
        let locked = retry(|| leave_log(&old)).and_then(|()| old.execute_batch("BEGIN EXCLUSIVE"));
        locked.map_err(|error| match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                StoreError::refused(Code::InUse, self.path.display().to_string())
            }
            _ => statement_error(error),
        })?;
        // A store whose tables cannot be read has no known epochs; the wall clock is above them.
        let known: Option<(i64, i64)> = first(&old, sql!("store/known"), []).unwrap_or_default();
        let floor = Epoch::from_i64(known.unwrap_or_default().1)?;
        Ok((old, floor))
    }

    /// Puts a sealed file into place, in one step. Returns where the file before is kept.
    pub(crate) fn replace(&self, staged: &Path) -> StoreResult<Option<PathBuf>> {
        let failed = |error| unusable(&self.path, &format!("it cannot be replaced: {error}"));
        let Ok(old) = fs::metadata(&self.path) else {
            // Somebody who has created the file meanwhile keeps it.
            fs::hard_link(staged, &self.path).map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists => {
                    StoreError::refused(Code::InUse, self.path.display().to_string())
                }
                _ => failed(error),
            })?;
            self.sync_folder().map_err(failed)?;
            return Ok(None);
        };
        let put = || {
            fs::set_permissions(staged, old.permissions())?;
            let new = fs::metadata(staged)?;
            if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
                chown(staged, Some(old.uid()), Some(old.gid()))?;
            }
            let before = keep_free_name(&self.path, |before| fs::hard_link(&self.path, before))?;
            // A log of the old file would be read as one of the new file.
            for side in SIDE_FILES {
                match fs::rename(ending(&self.path, side), ending(&before, side)) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            self.sync_folder()?;
            fs::rename(staged, &self.path)?;
            self.sync_folder()?;
            Ok(before)
        };
        put().map(Some).map_err(failed)
    }

    fn sync_folder(&self) -> io::Result<()> {
        File::open(self.path.parent().unwrap_or(Path::new("/")))?.sync_all()
    }
}
