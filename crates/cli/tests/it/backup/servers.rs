//! The commands that `tenure store backup` prints for stores on servers, run as they are printed.

use std::path::Path;

use testkit::{
    EtcdOptions, EtcdServer, PostgresOptions, PostgresServer, RedisOptions, RedisServer,
    TEST_POSTGRES, service,
};

use super::{DUTIES, check_fenced, duty, open, runtime, work};
use crate::tenure::{Ran, Tenure};

/// Returns the printed commands, without the remarks.
fn commands(tenure: &Tenure, url: &str, command: &[&str]) -> Vec<String> {
    let ran = tenure.run(&[command, &["--store", url]].concat());
    assert_eq!(ran.code, Some(1), "{ran:?}");
    ran.hides("s3cret");
    assert!(ran.stderr.starts_with("ST034: ") && ran.stderr.contains("run the printed commands"));
    let lines = ran.stdout.lines().filter(|line| !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

fn sh(tenure: &Tenure, line: &str, password: &str) {
    let binary = Path::new(env!("CARGO_BIN_EXE_tenure")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let mut shell = tenure.command_of("sh", &["-c", line]);
    shell.env("PATH", path).env("PGPASSWORD", password).env("ETCDCTL_API", "3");
    let ran = Ran::of(shell.output().unwrap());
    assert_eq!(ran.code, Some(0), "{line}: {ran:?}");
}

/// Backs up, goes on, restores and adopts; both are given the lines that they run.
fn there_and_back(
    tenure: &Tenure,
    url: &str,
    back_up: impl FnOnce(&[String]),
    restore: impl FnOnce(&[String]) -> String,
) {
    let (mut old, mut newest) = (Vec::new(), 0);
    runtime().block_on(async {
        let store = open(url).await;
        old.extend(work(&*store, "a", 2).await.map(|it| it.0));
    });
    let lines = commands(tenure, url, &["store", "backup"]);
    assert_eq!(commands(tenure, url, &["store", "restore", "x"]), lines);
    back_up(&lines);
    runtime().block_on(async {
        let store = open(url).await;
        for id in ["cursor", "b"] {
            let (holder, epoch, _) = work(&*store, id, 3).await.unwrap();
            old.push(holder);
            newest = epoch.max(newest);
        }
    });
    let restored = restore(&lines);
    runtime().block_on(async {
        let store = open(&restored).await;
        let checkpoints = store.load(&DUTIES.map(duty)).await.unwrap();
        let versions = checkpoints.iter().map(|it| it.as_ref().map_or(0, |it| it.version.get()));
        assert_eq!(versions.collect::<Vec<_>>(), [0, 2, 0], "{url}");
        check_fenced(&*store, newest, old).await;
    });
}

/// Adopts with the printed command, at the URL that has the password and the port.
fn adopt(tenure: &Tenure, lines: &[String], url: &str) {
    let (command, _) = lines.last().unwrap().split_once(" --store ").unwrap();
    assert_eq!(command, "tenure store adopt --yes");
    sh(tenure, &format!("{command} --store '{url}'"), "");
}

#[test]
fn postgres_is_backed_up_with_pg_dump() {
    if service(TEST_POSTGRES).is_none() {
        return;
    }
    let server = PostgresServer::start(PostgresOptions::default()).unwrap();
    let (tenure, url) = (Tenure::new(), format!("{}?schema=lease", server.url()));
    let password = url.split('@').next().unwrap().rsplit(':').next().unwrap().to_owned();
    there_and_back(
        &tenure,
        &url,
        |lines| sh(&tenure, &lines[0], &password),
        |lines| {
            let [dump, rename, load, _] = lines else { panic!("{lines:?}") };
            assert!(dump.starts_with("pg_dump ") && load.starts_with("pg_restore "));
            sh(&tenure, rename, &password);
            sh(&tenure, load, &password);
            adopt(&tenure, lines, &url);
            url.clone()
        },
    );
    // What was there before is kept under another name.
    let kept = format!("{}?schema=lease_before", server.url());
    let said = server.sql("SELECT count(*) FROM lease_before.checkpoint").unwrap();
    assert_eq!(said.trim(), "3", "{kept}");
}

#[test]
fn redis_is_backed_up_with_redis_cli() {
    if service(TEST_POSTGRES).is_none() {
        return;
    }
    let start = |snapshot| {
        RedisServer::start(RedisOptions { snapshot, ..RedisOptions::default() }).unwrap()
    };
    let (tenure, server) = (Tenure::new(), start(None));
    let mut copy = None;
    there_and_back(
        &tenure,
        &format!("{}?prefix=app:", server.url()),
        |lines| sh(&tenure, &lines[0], ""),
        |lines| {
            let new = start(Some(tenure.path("tenure.rdb")));
            let [_, log, _] = lines else { panic!("{lines:?}") };
            let (old, port) = (format!("-p {}", server.port()), format!("-p {}", new.port()));
            sh(&tenure, &log.replace(&old, &port), "");
            let url = format!("{}?prefix=app:", new.url());
            adopt(&tenure, lines, &url);
            copy = Some(new);
            url
        },
    );
}

#[test]
fn etcd_is_backed_up_with_etcdctl() {
    if service(TEST_POSTGRES).is_none() {
        return;
    }
    let (tenure, server) = (Tenure::new(), EtcdServer::start(EtcdOptions::default()).unwrap());
    let mut copy = None;
    there_and_back(
        &tenure,
        &format!("{}?prefix=app/", server.url()),
        |lines| sh(&tenure, &lines[0], ""),
        |lines| {
            let [_, load, _] = lines else { panic!("{lines:?}") };
            sh(&tenure, load, "");
            assert!(tenure.path("etcd.restored/member").is_dir());
            let snapshot = Some(tenure.path("tenure.snap"));
            let new = EtcdServer::start(EtcdOptions { snapshot, ..EtcdOptions::default() });
            let new = new.unwrap();
            let url = format!("{}?prefix=app/", new.url());
            adopt(&tenure, lines, &url);
            copy = Some(new);
            url
        },
    );
}
