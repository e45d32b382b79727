//! Which kind of file system a path is on: locks and fsync mean little on some.

use std::path::Path;

/// Kinds by the magic number that `statfs` gives.
const KINDS: &[(u64, &str)] = &[
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
    (0xfe53_4d42, "smb2"),
    (0x517b, "smb"),
    (0x6573_5546, "fuse"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "ceph"),
    (0x0bd0_0bd0, "lustre"),
    (0x4750_4653, "gpfs"),
    (0x0116_1970, "gfs2"),
    (0x7461_636f, "ocfs2"),
    (0x5346_414f, "afs"),
    (0x7377_6673, "vboxsf"),
    (0x4d44, "vfat"),
    (0x2011_bab0, "exfat"),
    (0x7366_746e, "ntfs3"),
    (0x5265_4973, "reiserfs"),
    (0x3153_464a, "jfs"),
    (0x7371_7368, "squashfs"),
    (0x9660, "iso9660"),
];

/// The kind of file system that holds `path`; its number in hexadecimal digits when it is none of
/// the known ones, `None` when it cannot be read.
pub(crate) fn kind(path: &Path) -> Option<String> {
    let magic = rustix::fs::statfs(path).ok()?.f_type;
    // The number has 32 bits; some platforms widen it with its sign.
    Some(name(magic as u64 & 0xffff_ffff))
}

fn name(magic: u64) -> String {
    let known = KINDS.iter().find(|(number, _)| *number == magic);
    known.map_or_else(|| format!("{magic:#x}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_a_name_or_a_number() {
        assert_eq!(name(0xef53), "ext4");
        assert_eq!(name(0x6969), "nfs");
        assert_eq!(name(0x1234), "0x1234");
        assert_eq!(kind(Path::new("/proc")).as_deref(), Some("0x9fa0"));
        assert_eq!(kind(Path::new("/nowhere/at/all")), None);
    }
}
