//! What the tests need installed.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// A program, and the Debian package that brings it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// The program to look for.
    pub binary: &'static str,
    /// The package to install when it is absent.
    pub package: &'static str,
}

/// Everything that `cargo xtask test` needs beside a Rust toolchain.
pub const NEEDS: &[Need] = &[
    Need { binary: "postgres", package: "postgresql" },
    Need { binary: "redis-server", package: "redis-server" },
    Need { binary: "faketime", package: "faketime" },
    Need { binary: "pgbouncer", package: "pgbouncer" },
    Need { binary: "curl", package: "curl" },
    Need { binary: "ps", package: "procps" },
    Need { binary: "haproxy", package: "haproxy" },
    Need { binary: "etcd", package: "etcd-server" },
    Need { binary: "etcdctl", package: "etcd-client" },
    // SQLite is compiled from its source.
    Need { binary: "cc", package: "build-essential" },
];

/// What a failover under Patroni needs besides.
pub const PATRONI: &[Need] = &[
    Need { binary: "patroni", package: "patroni" },
    // It brings no program of its own; the one above is useless here without it.
    Need { binary: "patroni", package: "python3-etcd" },
];

/// What buckets are measured beside.
pub const BUCKETS: &[Need] =
    &[Need { binary: "node", package: "nodejs" }, Need { binary: "python3", package: "python3" }];

/// What a minimal Debian is made and looked at with.
pub const FRESH: &[Need] = &[
    Need { binary: "debootstrap", package: "debootstrap" },
    Need { binary: "curl", package: "curl" },
];

/// The packages to install before the tests can run.
#[must_use]
pub fn missing() -> Vec<&'static str> {
    missing_of(NEEDS)
}

/// The packages to install for these.
#[must_use]
pub fn missing_of(needs: &[Need]) -> Vec<&'static str> {
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
