//! `tenure doctor` on servers with good and bad settings.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tenure_core::guarantee::Level;
use testkit::{
    Pgbouncer, PostgresOptions, PostgresServer, RedisOptions, RedisServer, TEST_POSTGRES,
    TEST_REDIS, service, wait_until,
};

use crate::tenure::Tenure;

/// A store that is examined by `tenure doctor`.
struct Patient {
    tenure: Tenure,
    url: String,
}

impl Patient {
    /// Creates the store.
    fn new(url: &str) -> Self {
        let tenure = Tenure::new();
        tenure.run(&["migrate", "--store", url]).ok();
        Self { tenure, url: url.to_owned() }
    }

    /// Returns an existing store, such as with another role.
    fn seen_by(url: &str) -> Self {
        Self { tenure: Tenure::new(), url: url.to_owned() }
    }

    fn report(&self) -> Value {
        self.tenure.run(&["doctor", "--json", "--store", &self.url]).json()
    }

    /// Checks the level, and that `--require` accepts it and no higher one.
    #[track_caller]
    fn has(&self, level: Level) -> Value {
        let report = self.report();
        assert_eq!(report["guarantee"], level.as_str(), "{report:#}");
        for &required in Level::ALL {
            let words = ["doctor", "--json", "--store", &self.url, "--require", required.as_str()];
            let ran = self.tenure.run(&words);
            let satisfied = required <= level;
            assert_eq!(ran.code, Some(i32::from(!satisfied)), "{ran:?}");
            let report: Value = serde_json::from_str(&ran.stdout).unwrap();
            assert_eq!(report["required"], required.as_str());
            assert_eq!(report["satisfied"], satisfied);
            assert_eq!(ran.stderr.contains("\"ST027\""), !satisfied, "{ran:?}");
        }
        report
    }

    /// Checks the level, and the value of the setting that causes it.
    #[track_caller]
    fn has_because(&self, level: Level, setting: &str, value: impl Into<Value>) {
        let report = self.report();
        assert_eq!(report["guarantee"], level.as_str(), "{report:#}");
        let finding = finding(&report, setting);
        assert_eq!(finding["value"], value.into(), "{finding}");
        assert_eq!(finding["level"], level.as_str(), "{finding}");
        // A setting that lowers the level, or cannot be read, has a suggested change.
        let lowers = level < Level::Fenced || finding["value"].is_null();
        assert!(!lowers || finding["attention"] == true && finding["change"].is_string());
    }
}

#[track_caller]
fn finding<'a>(report: &'a Value, setting: &str) -> &'a Value {
    let findings = report["findings"].as_array().unwrap();
    let found = findings.iter().find(|finding| finding["setting"] == setting);
    found.unwrap_or_else(|| panic!("no {setting} in {report:#}"))
}

fn soon(what: &str, holds: impl FnMut() -> bool) {
    wait_until(what, Duration::from_secs(30), holds).unwrap();
}

/// Changes a setting of a running server and waits until new connections use it.
fn set(server: &PostgresServer, name: &str, value: &str) {
    server.sql(&format!("ALTER SYSTEM SET {name} = '{value}'")).unwrap();
    server.sql("SELECT pg_reload_conf()").unwrap();
    let show = format!("SHOW {name}");
    soon("the setting is in force", || server.sql(&show).unwrap().trim() == value);
}

fn postgres() -> Option<PostgresServer> {
    service(TEST_POSTGRES)?;
    Some(PostgresServer::start(PostgresOptions::default()).unwrap())
}

fn redis() -> Option<RedisServer> {
    service(TEST_REDIS)?;
    Some(RedisServer::start(RedisOptions::default()).unwrap())
}

#[test]
fn a_sqlite_file_is_as_good_as_its_disk() {
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let patient = Patient::new(&format!("sqlite:{}/tenure.db", folder.path().display()));
    let report = patient.report();
    let filesystem = finding(&report, "filesystem")["value"].as_str().unwrap();
    let level = match filesystem {
        "ext4" | "xfs" | "btrfs" | "zfs" | "f2fs" | "overlay" => Level::Fenced,
        _ => Level::BestEffort,
    };
    patient.has(level);
    assert_eq!(report["backend"], "sqlite");
    assert_eq!(report["store"], patient.url);
    assert_eq!((&report["required"], &report["satisfied"]), (&Value::Null, &true.into()));
    assert_eq!(report["clock_difference_ms"], Value::Null);
    assert!(report["round_trip_ms"].is_u64());
    assert_eq!(finding(&report, "journal_mode")["value"], "wal");
    assert_eq!(finding(&report, "synchronous")["value"], "full");
    // A file that others may read is reported, but does not lower the level.
    assert_eq!(finding(&report, "file_mode")["value"], "0600");
    let shared = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(folder.path().join("tenure.db"), shared).unwrap();
    let report = patient.has(level);
    let mode = finding(&report, "file_mode");
    assert_eq!((&mode["value"], &mode["attention"]), (&"0640".into(), &true.into()), "{mode}");
}

#[test]
fn a_sqlite_file_in_memory_is_best_effort() {
    let folder = TempDir::new_in("/dev/shm").unwrap();
    let patient = Patient::new(&format!("sqlite:{}/tenure.db", folder.path().display()));
    patient.has(Level::BestEffort);
    patient.has_because(Level::BestEffort, "filesystem", "tmpfs");
}

#[test]
fn people_read_the_level_first_and_what_to_change() {
    let folder = TempDir::new_in("/dev/shm").unwrap();
    let url = format!("sqlite:{}/tenure.db", folder.path().display());
    let tenure = Patient::new(&url).tenure;
    let text = tenure.run(&["doctor", "--store", &url]).ok();
    let first = "guarantee: best-effort (a crash or a failover may lose or repeat anything)\n\n";
    assert!(text.starts_with(first), "{text}");
    let line = text.lines().find(|line| line.starts_with("filesystem ")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[..4], ["filesystem", "tmpfs", "lowers", "best-effort"]);
    assert!(line.ends_with("; change: put the file on a disk"), "{line}");
    // A level that is too low is an error; the report is printed all the same.
    let ran = tenure.run(&["doctor", "--require", "fenced", "--store", &url]);
    assert_eq!((ran.code, ran.stdout.starts_with(first)), (Some(1), true), "{ran:?}");
    let error = "ST027: the store does not give the required guarantee: \
                 fenced is required, the store gives best-effort\n";
    assert!(ran.stderr.starts_with(error), "{ran:?}");
}

#[test]
fn another_word_for_a_level_is_bad_usage() {
    let tenure = Tenure::new();
    for word in ["nonsense", "Fenced", ""] {
        let ran = tenure.run(&["doctor", "--require", word]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        for &level in Level::ALL {
            assert!(ran.stderr.contains(level.as_str()), "{ran:?}");
        }
    }
    tenure.run(&["doctor", "--require", "postgres://me:s3cret@h/db"]).hides("s3cret");
}

#[test]
fn a_store_that_is_not_there_is_not_made() {
    let tenure = Tenure::new();
    tenure.run(&["doctor"]).refused("ST015");
    assert_eq!(std::fs::read_dir(tenure.path(".")).unwrap().count(), 0);
}

#[test]
fn postgres_is_judged_by_how_it_writes() {
    let Some(server) = postgres() else { return };
    let patient = Patient::new(&server.url());
    let report = patient.has(Level::ExclusiveEffects);
    assert_eq!(finding(&report, "recovery")["value"], "primary");
    assert_eq!(finding(&report, "standbys")["value"], "none");
    assert_eq!(finding(&report, "pooled")["value"], "direct");
    assert_eq!(finding(&report, "tls")["value"], "off");
    assert!(report["clock_difference_ms"].as_i64().unwrap().abs() < 60_000, "{report}");

    for (name, bad, good, level) in [
        ("synchronous_commit", "off", "on", Level::AtLeastOnce),
        ("full_page_writes", "off", "on", Level::BestEffort),
        ("fsync", "off", "on", Level::BestEffort),
    ] {
        set(&server, name, bad);
        patient.has_because(level, name, bad);
        set(&server, name, good);
    }
    set(&server, "synchronous_commit", "local");
    patient.has(Level::ExclusiveEffects);
    server.sql("ALTER ROLE tenure SET synchronous_commit = off").unwrap();
    // The role's own setting overrides the server's.
    patient.has_because(Level::AtLeastOnce, "synchronous_commit", "off");
}

#[test]
fn postgres_is_judged_by_its_standbys() {
    let Some(primary) = postgres() else { return };
    let patient = Patient::new(&primary.url());
    let standby = PostgresServer::standby_of(&primary).unwrap();
    let state = |state: &str| {
        let states = "SELECT string_agg(sync_state, ' ' ORDER BY sync_state DESC)
            FROM pg_stat_replication WHERE state = 'streaming'";
        soon(state, || primary.sql(states).unwrap().trim() == state);
    };
    state("async");
    patient.has_because(Level::AtLeastOnce, "standbys", "asynchronous");
    Patient::seen_by(&standby.url())
        .tenure
        .run(&["doctor", "--store", &standby.url()])
        .refused("ST006");

    set(&primary, "synchronous_standby_names", "*");
    state("sync");
    patient.has_because(Level::ExclusiveEffects, "standbys", "synchronous");
    set(&primary, "synchronous_commit", "local");
    patient.has_because(Level::AtLeastOnce, "synchronous_commit", "local");
    set(&primary, "synchronous_commit", "remote_write");
    patient.has_because(Level::AtLeastOnce, "synchronous_commit", "remote_write");
    set(&primary, "synchronous_commit", "on");

    // A role with few rights sees that a standby exists, but not whether it is synchronous.
    primary.sql("CREATE ROLE app LOGIN PASSWORD 's3cret'").unwrap();
    primary.sql("GRANT USAGE ON SCHEMA tenure TO app").unwrap();
    primary.sql("GRANT ALL ON ALL TABLES IN SCHEMA tenure TO app").unwrap();
    let place = primary.url().rsplit_once('@').unwrap().1.to_owned();
    let app = Patient::seen_by(&format!("postgres://app:s3cret@{place}"));
    app.has_because(Level::AtLeastOnce, "standbys", Value::Null);
    let report = app.report();
    let hidden = |f: &&Value| f["value"].is_null();
    assert_eq!(report["findings"].as_array().unwrap().iter().filter(hidden).count(), 1);
    assert!(!report.to_string().contains("s3cret"));
    primary.sql("GRANT pg_monitor TO app").unwrap();
    app.has(Level::ExclusiveEffects);

    // With two standbys, a quorum of both is synchronous. With a quorum of one, either may lag.
    let second = PostgresServer::standby_of(&primary).unwrap();
    state("sync potential");
    patient.has_because(Level::AtLeastOnce, "standbys", "mixed");
    set(&primary, "synchronous_standby_names", "ANY 2 (*)");
    state("quorum quorum");
    patient.has_because(Level::ExclusiveEffects, "standbys", "synchronous");
    set(&primary, "synchronous_standby_names", "ANY 1 (*)");
    state("quorum quorum");
    patient.has_because(Level::AtLeastOnce, "standbys", "mixed");

    drop((standby, second));
    soon("the standby is gone", || primary.sql("TABLE pg_stat_replication").unwrap().is_empty());
    let report = patient.report();
    assert_eq!(finding(&report, "standbys")["value"], "missing");
    assert_eq!(finding(&report, "standbys")["attention"], true);
}

#[test]
fn a_pooler_is_noticed_and_lowers_nothing() {
    let Some(server) = postgres() else { return };
    let pooler = Pgbouncer::start(&server).unwrap();
    let patient = Patient::new(&pooler.url());
    patient.has_because(Level::ExclusiveEffects, "pooled", "pooled");
    assert_eq!(finding(&patient.report(), "pooled")["attention"], true);
}

#[test]
fn redis_is_judged_by_what_it_keeps() {
    let Some(server) = redis() else { return };
    let config = |name: &str, value: &str| server.cli(&["config", "set", name, value]).unwrap();
    let patient = Patient::new(&server.url());
    patient.has_because(Level::BestEffort, "appendonly", "no");
    config("appendonly", "yes");
    config("appendfsync", "everysec");
    patient.has_because(Level::AtLeastOnce, "appendfsync", "everysec");
    config("appendfsync", "no");
    patient.has_because(Level::BestEffort, "appendfsync", "no");
    config("appendfsync", "always");
    let report = patient.has(Level::Fenced);
    assert!(report["clock_difference_ms"].as_i64().unwrap().abs() < 60_000, "{report}");
    config("no-appendfsync-on-rewrite", "yes");
    patient.has_because(Level::BestEffort, "no-appendfsync-on-rewrite", "yes");
    config("no-appendfsync-on-rewrite", "no");
    // An eviction policy has an effect only with a memory limit.
    config("maxmemory-policy", "allkeys-lru");
    patient.has_because(Level::Fenced, "maxmemory-policy", "allkeys-lru, not in force");
    config("maxmemory", "100mb");
    patient.has_because(Level::BestEffort, "maxmemory-policy", "allkeys-lru");
    config("maxmemory-policy", "noeviction");
    patient.has_because(Level::Fenced, "maxmemory", "104857600");
}

#[test]
fn a_redis_replica_may_be_promoted_without_the_last_grants() {
    let Some(server) = redis() else { return };
    for (name, value) in [("appendonly", "yes"), ("appendfsync", "always")] {
        server.cli(&["config", "set", name, value]).unwrap();
    }
    let patient = Patient::new(&server.url());
    patient.has_because(Level::Fenced, "connected_replicas", "0");
    let options = RedisOptions { replica_of: Some(server.port()), ..RedisOptions::default() };
    let replica = RedisServer::start(options).unwrap();
    soon("the replica is connected", || {
        server.cli(&["info", "replication"]).unwrap().contains("connected_slaves:1")
    });
    patient.has_because(Level::AtLeastOnce, "connected_replicas", "1");
    server.cli(&["config", "set", "min-replicas-to-write", "1"]).unwrap();
    patient.has_because(Level::AtLeastOnce, "connected_replicas", "1");
    drop(replica);
}

#[test]
fn what_a_redis_user_may_not_read_counts_as_the_weakest() {
    let Some(server) = redis() else { return };
    for (name, value) in [("appendonly", "yes"), ("appendfsync", "always")] {
        server.cli(&["config", "set", name, value]).unwrap();
    }
    Patient::new(&server.url()).has(Level::Fenced);
    let user = |rights: &[&str]| {
        let words = ["acl", "setuser", "app", "reset", "on", ">s3cret", "~*", "&*", "+@all"];
        server.cli(&[&words[..], rights].concat()).unwrap();
        let place = server.url().rsplit_once("//").unwrap().1.to_owned();
        Patient::seen_by(&format!("redis://app:s3cret@{place}"))
    };
    // INFO has most settings, but not `appendfsync`.
    let report = user(&["-config"]).has(Level::BestEffort);
    assert_eq!(finding(&report, "appendonly")["value"], "yes");
    assert_eq!(finding(&report, "appendfsync")["value"], Value::Null);
    assert_eq!(finding(&report, "appendfsync")["level"], "best-effort");
    // CONFIG has some of the settings of INFO.
    let report = user(&["-info"]).has(Level::BestEffort);
    assert_eq!(finding(&report, "appendonly")["value"], "yes");
    assert_eq!(finding(&report, "role")["value"], Value::Null);
    let report = user(&["-config", "-info"]).has(Level::BestEffort);
    let read = |f: &&Value| !f["value"].is_null();
    let read: Vec<_> = report["findings"].as_array().unwrap().iter().filter(read).collect();
    assert_eq!(read.len(), 3, "TLS, clock and round trip: {read:?}");
    assert!(!report.to_string().contains("s3cret"));
}
