//! Atomic replacement of files.

use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::Path;

/// Mode of a new file, before the umask.
const NEW_FILE_MODE: u32 = 0o666;

/// Replaces or creates a file. When this returns, the new content is on the disk; a reader finds
/// the old content or the new one, whatever happens meanwhile.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_or_create(path, content, NEW_FILE_MODE)
}

/// Like [`replace`]; a new file gets this mode, less the umask.
pub fn replace_or_create(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    // A link is followed; a device or a pipe is written to, not replaced.
    let path = match path.canonicalize() {
        Ok(path) => path,
        Err(error) if path.is_symlink() => return Err(error),
        Err(_) => path.to_owned(),
    };
    let found = path.metadata().ok();
    if found.as_ref().is_some_and(|found| !found.is_file()) {
        let mut there = File::options().write(true).open(&path)?;
        return there.write_all(content);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut file = tempfile::Builder::new()
        // The prefix identifies files that a killed process left behind.
        .prefix(&format!(".{name}."))
        .suffix(".tmp")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(folder)?;
    if let Some(found) = found {
        // Keep the owner, so that it can still access the file; only root can do so.
        let _ = fchown(file.as_file(), Some(found.uid()), Some(found.gid()));
        file.as_file().set_permissions(found.permissions())?;
    }
    file.write_all(content)?;
    file.as_file().sync_all()?;
    file.persist(&path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::chown;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    fn owner_of(path: &Path) -> (u32, u32) {
        let found = path.metadata().unwrap();
        (found.uid(), found.gid())
    }

    #[test]
    fn a_file_is_replaced_where_a_link_leads_and_stays_as_private_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        replace(&file, b"one").unwrap();
        assert_ne!(mode(&file) & 0o400, 0);
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        // Only root can change the owner; otherwise the file stays ours.
        let _ = chown(&file, Some(12_345), Some(12_345));
        let owner = owner_of(&file);
        replace(&link, b"two").unwrap();
        assert_eq!(owner_of(&file), owner);
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!((fs::read(&file).unwrap(), mode(&file)), (b"two".to_vec(), 0o640));
        // No temporary file is left behind, and a failed write changes nothing.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        assert!(replace(&folder.path().join("none/file"), b"x").is_err());
        assert!(replace(folder.path(), b"x").is_err());
        std::os::unix::fs::symlink("nowhere", folder.path().join("lost")).unwrap();
        assert!(replace(&folder.path().join("lost"), b"x").is_err());
        replace(Path::new("/dev/null"), b"x").unwrap();
    }
}
