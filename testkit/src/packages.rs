//! Packages that the tests need.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// A program, and the Debian package that contains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackageRequirement {
    /// The program to look for.
    pub binary: &'static str,
    /// The package to install when it is absent.
    pub package: &'static str,
}

/// Everything that `cargo xtask test` needs in addition to a Rust toolchain.
pub const NEEDS: &[PackageRequirement] = &[
    PackageRequirement { binary: "postgres", package: "postgresql" },
    PackageRequirement { binary: "redis-server", package: "redis-server" },
    PackageRequirement { binary: "faketime", package: "faketime" },
    PackageRequirement { binary: "pgbouncer", package: "pgbouncer" },
    PackageRequirement { binary: "curl", package: "curl" },
    PackageRequirement { binary: "node", package: "nodejs" },
    PackageRequirement { binary: "openssl", package: "openssl" },
    PackageRequirement { binary: "python3", package: "python3" },
    PackageRequirement { binary: "ps", package: "procps" },
    PackageRequirement { binary: "haproxy", package: "haproxy" },
    PackageRequirement { binary: "etcd", package: "etcd-server" },
    PackageRequirement { binary: "etcdctl", package: "etcd-client" },
    // SQLite is compiled from its source.
    PackageRequirement { binary: "cc", package: "build-essential" },
];

/// Additional packages for a failover under Patroni.
pub const PATRONI: &[PackageRequirement] = &[
    PackageRequirement { binary: "patroni", package: "patroni" },
    // The package has no program of its own, but Patroni requires it.
    PackageRequirement { binary: "patroni", package: "python3-etcd" },
];

/// Programs of the examples that only a soak runs.
pub const EXAMPLES: &[PackageRequirement] =
    &[PackageRequirement { binary: "go", package: "golang-go" }];

/// Programs that create and inspect a minimal Debian.
pub const FRESH_DEBIAN: &[PackageRequirement] = &[
    PackageRequirement { binary: "debootstrap", package: "debootstrap" },
    PackageRequirement { binary: "curl", package: "curl" },
];

/// The packages to install before the tests can run.
#[must_use]
pub fn missing() -> Vec<&'static str> {
    missing_of(NEEDS)
}

/// The packages to install for these.
#[must_use]
pub fn missing_of(needs: &[PackageRequirement]) -> Vec<&'static str> {
    needs.iter().filter(|need| find(need.binary).is_none()).map(|need| need.package).collect()
}

/// Finds a program: in the newest PostgreSQL, in `PATH`, then in the administrator's folders.
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

/// Finds the newest PostgreSQL: Debian has a folder per major version, and none in `PATH`.
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
