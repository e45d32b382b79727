//! Type and free space of a file system.

use std::path::Path;

use rustix::fs::statfs;

/// Known types, by the number that the kernel reports.
const FILESYSTEM_TYPES: &[(u32, &str)] = &[
    // ext2 and ext3 have the same number.
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x2fc1_2fc1, "zfs"),
    (0xf2f5_2010, "f2fs"),
    (0xca45_1a4e, "bcachefs"),
    (0x794c_7630, "overlay"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x6969, "nfs"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "cifs"),
    (0x517b, "smb"),
    (0x6573_5546, "fuse"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "ceph"),
    (0x5346_414f, "afs"),
    (0x6b41_4653, "afs"),
    (0x0bd0_0bd0, "lustre"),
    (0x4750_4653, "gpfs"),
    (0x0116_1970, "gfs2"),
    (0x7461_636f, "ocfs2"),
    (0x7377_6673, "vboxsf"),
    (0x4d44, "vfat"),
    (0x2011_bab0, "exfat"),
    (0x7366_746e, "ntfs3"),
];

/// Returns the name of the type, or its number in hexadecimal; `None` when it cannot be determined.
pub(crate) fn kind(path: &Path) -> Option<String> {
    // The number has 32 bits; the field is wider, and on some machines signed.
    Some(name(statfs(path).ok()?.f_type as u32))
}

/// Returns the bytes that are free for an unprivileged user.
#[cfg(feature = "sqlite")]
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    let room = rustix::fs::statvfs(path).ok()?;
    Some(room.f_bavail.saturating_mul(room.f_frsize))
}

fn name(number: u32) -> String {
    let known = FILESYSTEM_TYPES.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| format!("{number:#x}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_names_and_strangers_a_number() {
        assert_eq!(name(0xef53), "ext4");
        assert_eq!(name(0xfe53_4d42), "cifs");
        assert_eq!(name(0x1234_abcd), "0x1234abcd");
        assert_eq!(kind(Path::new("/proc")).as_deref(), Some("0x9fa0"));
        assert_eq!(kind(Path::new("/no/such/file")), None);
    }

    #[test]
    #[cfg(feature = "sqlite")]
    fn a_file_system_has_room_or_is_not_there() {
        assert_eq!(free_bytes(Path::new("/no/such/file")), None);
        assert!(free_bytes(Path::new("/")).is_some());
    }
}
