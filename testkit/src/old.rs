//! Stores that version 0.1 has written, for tests that open them with the current code.
//!
//! `testkit/tests/formats/v0.1` has a store of each kind, with equal contents, and what the
//! commands of that version printed about it. `crates/cli/tests/it/formats.rs` made them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::guard::output;
use crate::ports::random;
use crate::{EtcdOptions, EtcdServer, RedisOptions, RedisServer, psql, psql_file};

/// The path of a fixture of version 0.1, whether or not it exists.
#[must_use]
pub fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/v0.1").join(name)
}

/// Creates the SQLite file at `to`.
pub fn sqlite(to: &Path) -> Result<()> {
    unpack("sqlite.db", to)
}

/// Creates a database on the server at `url` and fills it; returns its URL. The tables are in the
/// schema `tenure`.
pub fn postgres(url: &str) -> Result<String> {
    let database = format!("old_{:016x}", random());
    psql(url, &format!("CREATE DATABASE {database}"))?;
    let (base, _) = url.rsplit_once('/').context("the URL has no database")?;
    let url = format!("{base}/{database}");
    let folder = tempfile::tempdir()?;
    let script = folder.path().join("postgres.sql");
    unpack("postgres.sql", &script)?;
    psql_file(&url, &script)?;
    Ok(url)
}

/// Starts a Redis with the data.
pub fn redis() -> Result<RedisServer> {
    let snapshot = Some(path("redis.rdb"));
    RedisServer::start(RedisOptions { snapshot, ..RedisOptions::default() })
}

/// Starts an etcd with the data.
pub fn etcd() -> Result<EtcdServer> {
    let folder = tempfile::tempdir()?;
    let snapshot = folder.path().join("snapshot");
    unpack("etcd.snapshot", &snapshot)?;
    EtcdServer::start(EtcdOptions { snapshot: Some(snapshot), ..EtcdOptions::default() })
}

/// Copies the cursor files `plain.json`, `signed.json` and `moved.json` into a folder, which is
/// created.
pub fn cursor_files(to: &Path) -> Result<()> {
    output(Command::new("cp").arg("-rT").args([&path("files"), to])).map(drop)
}

/// The token of the switchboard in that store: the output of `tenure token create`.
pub fn token(store: &str) -> Result<String> {
    Ok(fs::read_to_string(path(&format!("{store}.token")))?)
}

fn unpack(name: &str, to: &Path) -> Result<()> {
    let packed = fs::File::open(path(&format!("{name}.gz")))?;
    let done = Command::new("gzip").arg("-dc").stdin(packed).stdout(fs::File::create(to)?).status();
    anyhow::ensure!(done?.success(), "gzip cannot unpack {name}");
    Ok(())
}
