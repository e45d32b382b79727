//! What the tests need installed.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// A program, and the Debian package that brings it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requirement {
    /// The program to look for.
    pub binary: &'static str,
    /// The package to install when it is absent.
    pub package: &'static str,
}

/// Everything that `cargo xtask test` needs beside a Rust toolchain.
pub const NEEDS: &[Requirement] = &[
    Requirement { binary: "postgres", package: "postgresql" },
    Requirement { binary: "redis-server", package: "redis-server" },
    Requirement { binary: "faketime", package: "faketime" },
    Requirement { binary: "pgbouncer", package: "pgbouncer" },
    Requirement { binary: "curl", package: "curl" },
    Requirement { binary: "ps", package: "procps" },
    Requirement { binary: "haproxy", package: "haproxy" },
    Requirement { binary: "etcd", package: "etcd-server" },
    Requirement { binary: "etcdctl", package: "etcd-client" },
    // SQLite is compiled from its source.
    Requirement { binary: "cc", package: "build-essential" },
];

/// What a failover under Patroni needs besides.
pub const PATRONI: &[Requirement] = &[
    Requirement { binary: "patroni", package: "patroni" },
    // It brings no program of its own; the one above is useless here without it.
    Requirement { binary: "patroni", package: "python3-etcd" },
];

/// What buckets are measured beside.
pub const BUCKETS: &[Requirement] = &[
    Requirement { binary: "node", package: "nodejs" },
    Requirement { binary: "python3", package: "python3" },
];

/// What a minimal Debian is made and looked at with.
pub const FRESH_DEBIAN: &[Requirement] = &[
    Requirement { binary: "debootstrap", package: "debootstrap" },
    Requirement { binary: "curl", package: "curl" },
];

/// The packages to install before the tests can run.
#[must_use]
pub fn missing() -> Vec<&'static str> {
    missing_of(NEEDS)
}

/// The packages to install for these.
#[must_use]
pub fn missing_of(needs: &[Requirement]) -> Vec<&'static str> {
    needs.iter().filter(|need| find(need.binary).is_none()).map(|need| need.package).collect()
}

/// Where a program is: the newest PostgreSQL first, then `PATH`, then the administrator's folder.
#[must_use]
pub(crate) fn find(binary: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    newest_postgres()
        .into_iter()
        .chain(env::split_paths(&path))
        .chain([PathBuf::from("/usr/sbin")])
        .map(|folder| folder.join(binary))
        .find(|file| file.is_file())
}

/// Debian keeps each major version in its own folder, and none in `PATH`.
fn newest_postgres() -> Option<PathBuf> {
    fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|version| version.join("bin/postgres").exists())
        .max_by_key(|version| major(version))
        .map(|version| version.join("bin"))
}

fn major(folder: &Path) -> u32 {
    folder.file_name().and_then(|name| name.to_str()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_is_there_and_only_that() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program").is_none());
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(major(Path::new("/usr/lib/postgresql/15")) > major(Path::new("x/9")));
    }
}
