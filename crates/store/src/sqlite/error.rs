//! SQLite errors as store errors.

use std::path::Path;

use rusqlite::{Error, ErrorCode};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use tenure_core::{Code, StoreError};

/// Converts an error before `COMMIT`: the transaction is rolled back, so it did not happen.
pub fn statement_error(error: Error) -> StoreError {
    let code = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Code::Busy,
        Some(ErrorCode::DiskFull) => Code::Full,
        Some(ErrorCode::ReadOnly) => Code::ReadOnly,
        Some(ErrorCode::CannotOpen) => Code::Unreachable,
        Some(ErrorCode::PermissionDenied) => Code::Denied,
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Code::Damaged,
        _ => Code::Failed,
    };
    // The driver would add the statement; SQLite's message is enough.
    let detail = match &error {
        Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    };
    StoreError::refused(code, detail).with_source(error)
}

/// Converts an error of opening a file. SQLite does not report that a folder is read-only, nor,
/// without a WAL file, that the file is.
pub fn open_error(path: &Path, error: Error) -> StoreError {
    let store_error = statement_error(error);
    // Checked without opening the file, because closing it would drop this process's locks on it.
    let is_denied =
        |path: &Path| matches!(access(path, Access::WRITE_OK), Err(Errno::ROFS | Errno::ACCESS));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let is_read_only = is_denied(path) || is_denied(folder.unwrap_or(Path::new(".")));
    if store_error.code() == Code::Unreachable && is_read_only {
        return StoreError::refused(Code::ReadOnly, path.display().to_string());
    }
    store_error
}

/// Converts an error of `COMMIT` itself. If the disk was full or the lock unavailable, SQLite has
/// rolled back; after any other error the pages may be on disk.
pub(super) fn commit_error(error: Error) -> StoreError {
    match statement_error(error) {
        StoreError::Refused(problem) if !matches!(problem.code, Code::Full | Code::Busy) => {
            StoreError::Unknown(problem)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use rusqlite::{Connection, OpenFlags};

    use super::super::connect::connect;
    use super::*;

    #[test]
    fn an_error_is_explained_without_dropping_the_locks_of_other_connections() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tenure.db");
        let other = connect(&path).unwrap();
        other.execute_batch("CREATE TABLE t (x)").unwrap();
        let file = format!(":{} ", std::fs::metadata(&path).unwrap().ino());
        let locks = || {
            let all = std::fs::read_to_string("/proc/locks").unwrap();
            all.lines().filter(|line| line.contains(&file)).count()
        };
        let before = locks();
        assert!(before > 0);
        let missing = Connection::open_with_flags(folder.path(), OpenFlags::default());
        assert_eq!(open_error(&path, missing.unwrap_err()).code(), Code::Unreachable);
        assert_eq!(locks(), before);
    }
}
