//! Boot and time namespace to which a file's times belong.
//!
//! Expiry in SQLite is judged by `CLOCK_BOOTTIME`, which is the same for all processes of one boot
//! and one time namespace, and meaningless to others. A file records the boot and namespace of its
//! times. Every open store holds a shared lock on `PATH-boot`. A process from another boot may take
//! the file over only while nobody holds that lock, and then all earlier sessions have ended. A
//! restore replaces the file under the same condition.
//!
//! Why: docs/decisions/0023-sqlite-time-since-boot.md

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};
use tenure_core::{Code, StoreError, StoreResult};

use super::connect::retry;
use super::error::statement_error;
use super::sql;

/// Attempts before the file counts as open in another boot, and the time between them.
const MAX_LOCK_ATTEMPTS: u32 = 100;
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Shared lock on the file, held for as long as the store is open.
#[derive(Debug)]
pub struct BootLock {
    shared: File,
}

/// Returns the boot and the time namespace of this process.
pub(super) fn identity() -> StoreResult<String> {
    let unreadable = |what: &str, error: std::io::Error| {
        StoreError::refused(Code::OtherBoot, format!("cannot read {what}: {error}"))
    };
    let boot_file = "/proc/sys/kernel/random/boot_id";
    let boot = std::fs::read_to_string(boot_file).map_err(|e| unreadable(boot_file, e))?;
    // Kernels before 5.6 have no time namespaces: then all processes share one.
    let namespace = std::fs::read_link("/proc/self/ns/time")
        .map_or_else(|_| "time:[none]".to_owned(), |link| link.display().to_string());
    Ok(format!("{} {namespace}", boot.trim()))
}

fn io_error(error: &std::io::Error) -> StoreError {
    let code = match error.kind() {
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => Code::ReadOnly,
        _ => Code::Unreachable,
    };
    StoreError::refused(code, format!("cannot use the lock file of the database: {error}"))
}

fn lock_path(path: &Path) -> OsString {
    let mut name = path.as_os_str().to_owned();
    name.push("-boot");
    name
}

/// Opens the lock file. A new one gets the mode of the database, as its log does: everybody who may
/// write the database may lock it.
fn open_lock(path: &Path) -> std::io::Result<File> {
    let name = lock_path(path);
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    match options.clone().create_new(true).mode(0o600).open(&name) {
        Ok(file) => {
            if let Ok(database) = std::fs::metadata(path) {
                file.set_permissions(database.permissions())?;
            }
            Ok(file)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => options.open(&name),
        Err(error) => Err(error),
    }
}

/// Takes the shared lock before the database is opened, so that nobody replaces its file meanwhile.
/// `None` if nobody has opened it before.
pub fn share(path: &Path) -> StoreResult<Option<BootLock>> {
    let opened = OpenOptions::new().read(true).write(true).open(lock_path(path));
    // An error that matters is met again by the next step.
    let Ok(shared) = opened else { return Ok(None) };
    shared.lock_shared().map_err(|error| io_error(&error))?;
    Ok(Some(BootLock { shared }))
}

/// Takes the lock for the process that replaces the file; refused while others use the store.
#[cfg(feature = "file")]
pub(super) fn exclude_others(path: &Path) -> StoreResult<File> {
    let file = open_lock(path).map_err(|error| io_error(&error))?;
    for _ in 0..MAX_LOCK_ATTEMPTS {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(std::fs::TryLockError::WouldBlock) => {
                std::thread::park_timeout(LOCK_RETRY_INTERVAL);
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(io_error(&error)),
        }
    }
    Err(StoreError::refused(Code::InUse, path.display().to_string()))
}

/// Takes the shared lock, or keeps `early`, after taking the file over from an earlier boot if need
/// be.
pub(super) fn enter(
    path: &Path,
    connection: &Connection,
    identity: &str,
    early: Option<BootLock>,
) -> StoreResult<BootLock> {
    let open = || open_lock(path).map_err(|error| io_error(&error));
    let file = early.map_or_else(open, |early| Ok(early.shared))?;
    for _ in 0..MAX_LOCK_ATTEMPTS {
        file.lock_shared().map_err(|error| io_error(&error))?;
        if stored(connection)?.as_deref() == Some(identity) {
            return Ok(BootLock { shared: file });
        }
        file.unlock().map_err(|error| io_error(&error))?;
        // Another process has the file open, in the recorded boot or to take it over as we do.
        if file.try_lock().is_err() {
            std::thread::park_timeout(LOCK_RETRY_INTERVAL);
            continue;
        }
        take_over(connection, identity)?;
        file.unlock().map_err(|error| io_error(&error))?;
    }
    Err(StoreError::refused(
        Code::OtherBoot,
        format!("{} is open in another boot or time namespace", path.display()),
    ))
}

fn stored(connection: &Connection) -> StoreResult<Option<String>> {
    retry(|| connection.query_row(sql!("boot/read"), [], |row| row.get(0)).optional())
        .map_err(statement_error)
}

/// Ends all sessions of another boot, whose nanoseconds mean nothing here.
fn take_over(connection: &Connection, identity: &str) -> StoreResult<()> {
    let run = || {
        connection.execute(sql!("session/reset"), [])?;
        connection.execute(sql!("boot/save"), [identity])
    };
    retry(|| connection.execute_batch("BEGIN IMMEDIATE")).map_err(statement_error)?;
    let done = run().and_then(|_| connection.execute_batch("COMMIT"));
    if done.is_err() {
        // The first error is returned; without a commit nothing has changed.
        let _ = connection.execute_batch("ROLLBACK");
    }
    done.map_err(statement_error)
}
