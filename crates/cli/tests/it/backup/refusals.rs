//! Backups and restores that are refused, and stores that are damaged.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};
use testkit::wait_until;

use super::{backup, check_fenced, give_back, local_stores, open, restore, runtime, work};
use crate::running::LIMIT;
use crate::tenure::{Ran, Tenure};

fn prepare(url: &str) {
    runtime().block_on(async {
        let store = open(url).await;
        let (holder, ..) = work(&*store, "cursor", 2).await.unwrap();
        give_back(&*store, holder).await;
    });
}

/// Names in a folder, without the log of a store that was just closed.
fn names(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| !name.ends_with("-wal") && !name.ends_with("-shm"));
    names.sort();
    names
}

fn version(tenure: &Tenure, url: &str) -> String {
    tenure.run(&["checkpoint", "get", "file/cursor", "--store", url]).ok()
}

#[test]
fn a_backup_is_private_and_replaces_nothing_unasked() {
    for n in 0..2 {
        let tenure = Tenure::new();
        let (url, is_sqlite) = local_stores(&tenure)[n].clone();
        let run = |words: &[&str]| {
            tenure.run(&[&["store", "backup", "--store", &url][..], words].concat())
        };
        run(&["new"]).refused("ST015");
        prepare(&url);
        std::fs::write(tenure.path("file"), "mine").unwrap();
        std::fs::create_dir(tenure.path("folder")).unwrap();
        std::fs::write(tenure.path("folder/file"), "mine").unwrap();
        std::os::unix::fs::symlink("file", tenure.path("link")).unwrap();
        let before = names(&tenure.path("."));
        let own = url.split_once(':').unwrap().1;
        let own_folder = format!("{own}{}", if is_sqlite { "-wal" } else { ".tenure" });
        for (to, why) in [
            ("file", "it exists: choose another place, or replace it with --force"),
            ("folder", "it exists"),
            ("link", "it exists"),
            ("none/new", "its folder cannot be written"),
            (own, "it belongs to the store itself"),
            (&own_folder, "it belongs to the store itself"),
        ] {
            let ran = run(&[to]);
            ran.refused("ST034");
            assert!(ran.stderr.contains(why), "{why}: {ran:?}");
        }
        let forced: &[&str] = if is_sqlite { &["folder"] } else { &["file", "folder"] };
        for to in forced.iter().chain(&[own]) {
            run(&[to, "--force"]).refused("ST034");
        }
        assert_eq!(run(&[]).code, Some(2));
        assert_eq!(names(&tenure.path(".")), before);
        assert_eq!(tenure.text("folder/file"), "mine");

        run(&["new"]).ok();
        let mode = tenure.path("new").metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if is_sqlite { 0o600 } else { 0o700 });
        run(&["new"]).refused("ST034");
        prepare(&url);
        run(&["new", "--force"]).ok();
        if is_sqlite {
            run(&["file", "--force"]).ok();
        }
        restore(&tenure, &url, "new");
        assert_eq!(version(&tenure, &url), "{\"n\":4}");
        assert_eq!(names(&tenure.path(".")).len(), before.len() + 2);
    }
}

#[test]
fn a_backup_passes_through_pipes() {
    let tenure = Tenure::new();
    let [(url, _), (file, _)] = local_stores(&tenure);
    prepare(&url);
    prepare(&file);
    let binary = env!("CARGO_BIN_EXE_tenure");
    let script = format!(
        "{binary} store backup - --store {url} 2> said | \
         {binary} store restore - --yes --store sqlite:copy.db"
    );
    Ran::of(tenure.command_of("sh", &["-c", &script]).output().unwrap()).ok();
    assert!(tenure.text("said").contains("1 group, 1 duty, 1 checkpoint"));
    assert_eq!(version(&tenure, "sqlite:copy.db"), "{\"n\":2}");
    let ran = tenure.run(&["store", "backup", "-", "--store", &file]);
    assert_eq!((ran.code, &*ran.stdout), (Some(2), ""), "{ran:?}");
    // A writer that ends early leaves no store.
    let script =
        format!("head -c 9000 copy.db | {binary} store restore - --yes --store sqlite:short.db");
    Ran::of(tenure.command_of("sh", &["-c", &script]).output().unwrap()).refused("ST034");
    assert!(names(&tenure.path(".")).iter().all(|name| !name.contains("short")));
}

#[test]
fn what_is_no_backup_is_refused_and_changes_nothing() {
    let tenure = Tenure::new();
    let [(sqlite, _), (file, _)] = local_stores(&tenure);
    prepare(&sqlite);
    prepare(&file);
    backup(&tenure, &sqlite, "good.db");
    backup(&tenure, &file, "good");
    let path = |name: &str| tenure.path(name);
    let good = std::fs::read(path("good.db")).unwrap();
    std::fs::write(path("empty"), "").unwrap();
    std::fs::write(path("text"), "tenure").unwrap();
    std::fs::write(path("short.db"), &good[..good.len() / 2]).unwrap();
    let mut torn = good.clone();
    let at = torn.len() - 4096;
    torn[at..].fill(0x5a);
    std::fs::write(path("torn.db"), torn).unwrap();
    let other = Connection::open(path("other.db")).unwrap();
    other.execute_batch("CREATE TABLE own (x)").unwrap();
    std::fs::copy(path("good.db"), path("newer.db")).unwrap();
    let newer = "INSERT INTO migration VALUES (999, 'later', 'all is different')";
    Connection::open(path("newer.db")).unwrap().execute_batch(newer).unwrap();
    // A store in use has its newest commits beside it.
    std::fs::copy(path("good.db"), path("live.db")).unwrap();
    std::fs::write(path("live.db-wal"), "x").unwrap();
    let damage = |name: &str, file: &str| {
        std::process::Command::new("cp")
            .args(["-r"])
            .arg(path("good"))
            .arg(path(name))
            .output()
            .unwrap();
        let file = path(name).join(file);
        std::fs::write(&file, &std::fs::read(&file).unwrap()[1..]).unwrap();
    };
    damage("torn-cursor", "cursor.json");
    damage("torn-group", "cursor.json.tenure/group-file.json");
    damage("torn-store", "cursor.json.tenure/store.json");
    std::fs::create_dir(path("empty-folder")).unwrap();
    let before = names(&path("."));
    for (url, from, code) in [
        (&sqlite, "none", "ST034"),
        (&sqlite, "empty", "ST034"),
        (&sqlite, "text", "ST034"),
        (&sqlite, "short.db", "ST034"),
        (&sqlite, "torn.db", "ST034"),
        (&sqlite, "other.db", "ST034"),
        (&sqlite, "newer.db", "ST004"),
        (&sqlite, "live.db", "ST034"),
        (&sqlite, "good", "ST034"),
        (&file, "none", "ST034"),
        (&file, "good.db", "ST034"),
        (&file, "text", "ST034"),
        (&file, "empty-folder", "ST034"),
        (&file, "torn-cursor", "ST034"),
        (&file, "torn-group", "ST034"),
        (&file, "torn-store", "ST034"),
    ] {
        for consent in ["--yes", "--dry-run"] {
            tenure.run(&["store", "restore", from, consent, "--store", url]).refused(code);
        }
        // Neither the store nor the backup was touched, and nothing was left behind.
        assert_eq!(names(&path(".")), before, "{from}");
        assert_eq!(version(&tenure, url), "{\"n\":2}");
    }
    let far = ["store", "restore", "good.db", "--yes", "--floor", "9007199254740991"];
    tenure.run(&[&far[..], &["--store", &sqlite]].concat()).refused("ST011");
}

#[test]
fn an_incomplete_backup_is_refused() {
    let tenure = Tenure::new();
    let [(sqlite, _), (file, _)] = local_stores(&tenure);
    prepare(&sqlite);
    prepare(&file);
    backup(&tenure, &sqlite, "zero.db");
    let zero = "UPDATE checkpoint SET version = 0";
    Connection::open(tenure.path("zero.db")).unwrap().execute_batch(zero).unwrap();
    // History and audit are in the folder.
    backup(&tenure, &file, "good");
    std::fs::copy(tenure.path("good/cursor.json"), tenure.path("alone.json")).unwrap();
    std::fs::write(tenure.path("other.json"), "{\"a\":1}").unwrap();
    for (url, from) in [
        (&sqlite, "zero.db"),
        (&sqlite, "/dev/full"),
        (&file, "/dev/full"),
        (&file, "alone.json"),
        (&file, "other.json"),
    ] {
        for consent in ["--yes", "--dry-run"] {
            tenure.run(&["store", "restore", from, consent, "--store", url]).refused("ST034");
        }
        assert_eq!(version(&tenure, url), "{\"n\":2}");
    }
}

#[test]
fn a_store_in_use_is_not_replaced() {
    let tenure = Tenure::new();
    for (url, is_sqlite) in local_stores(&tenure) {
        prepare(&url);
        backup(&tenure, &url, "backup");
        let words = ["store", "restore", "backup", "--yes", "--store", &url];
        let refused = || {
            let ran = tenure.run(&words);
            ran.refused("ST021");
            assert!(ran.stderr.contains("stop all processes that use the store"), "{ran:?}");
        };
        runtime().block_on(async {
            let store = open(&url).await;
            let (holder, ..) = work(&*store, "cursor", 1).await.unwrap();
            refused();
            // It goes on as if nothing had happened.
            give_back(&*store, holder).await;
            let (holder, ..) = work(&*store, "cursor", 1).await.unwrap();
            give_back(&*store, holder).await;
        });
        assert_eq!(version(&tenure, &url), "{\"n\":4}");
        if is_sqlite {
            // Any program that has it open, such as a shell.
            let shell = Connection::open(tenure.path("tenure.db")).unwrap();
            let count = "SELECT count(*) FROM hold";
            shell.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap();
            refused();
        }
        restore(&tenure, &url, "backup");
        assert_eq!(version(&tenure, &url), "{\"n\":2}");
        std::fs::remove_file(tenure.path("backup"))
            .or_else(|_| std::fs::remove_dir_all(tenure.path("backup")))
            .unwrap();
    }
}

/// The store before is no store any more, or that of another program.
#[test]
fn a_damaged_store_is_replaced_and_kept() {
    let tenure = Tenure::new();
    let [(sqlite, _), (file, _)] = local_stores(&tenure);
    for (url, to) in [(&sqlite, "b.db"), (&file, "b")] {
        prepare(url);
        backup(&tenure, url, to);
    }
    std::fs::write(tenure.path("tenure.db"), "no database at all").unwrap();
    std::fs::write(tenure.path("tenure.db-wal"), "a log of it").unwrap();
    restore(&tenure, &sqlite, "b.db");
    assert_eq!(version(&tenure, &sqlite), "{\"n\":2}");
    assert_eq!(tenure.text("tenure.db.before-1"), "no database at all");
    assert_eq!(tenure.text("tenure.db.before-1-wal"), "a log of it");

    std::fs::write(tenure.path("own.json"), "{").unwrap();
    std::fs::write(tenure.path("own.json.tenure/store.json"), "").unwrap();
    restore(&tenure, &file, "b");
    assert_eq!(version(&tenure, &file), "{\"n\":2}");
    assert_eq!(tenure.text("own.json.before-1/own.json"), "{");

    let own = Connection::open(tenure.path("own.db")).unwrap();
    own.execute_batch("CREATE TABLE own (x)").unwrap();
    drop(own);
    let words = ["store", "restore", "b.db", "--yes", "--store", "sqlite:own.db"];
    let ran = tenure.run(&words);
    ran.refused("ST014");
    assert!(ran.stderr.contains("another program's database"), "{ran:?}");
    // Without a store before, there is nothing to keep.
    restore(&tenure, "sqlite:fresh.db", "b.db");
    restore(&tenure, "file:fresh.json", "b");
    assert_eq!(version(&tenure, "file:fresh.json"), "{\"n\":2}");
    assert!(names(&tenure.path(".")).iter().all(|name| !name.starts_with("fresh.json.before")));
}

/// The process is killed between two renames: nobody can use the half, and the next run completes.
#[test]
fn an_interrupted_restore_is_repeated() {
    let tenure = Tenure::new();
    let (file, _) = local_stores(&tenure)[1].clone();
    prepare(&file);
    backup(&tenure, &file, "backup");
    prepare(&file);
    let floor = 8_000_000_000_000_000_u64;
    std::fs::write(tenure.path("own.json.tenure/restoring"), floor.to_string()).unwrap();
    std::fs::remove_file(tenure.path("own.json")).unwrap();
    std::fs::remove_file(tenure.path("own.json.tenure/store.json")).unwrap();
    std::fs::remove_file(tenure.path("own.json.tenure/group-file.json")).unwrap();
    for words in [&["ls"][..], &["migrate"], &["store", "backup", "new"], &["store", "adopt"]] {
        let ran = tenure.run(&[words, &["--store", &file]].concat());
        ran.refused("ST034");
        assert!(ran.stderr.contains("a restore was interrupted: run it again"), "{ran:?}");
    }
    let done = restore(&tenure, &file, "backup");
    assert_eq!(done["floor"], floor, "{done}");
    assert_eq!(version(&tenure, &file), "{\"n\":2}");
    runtime().block_on(async { check_fenced(&*open(&file).await, floor, Vec::new()).await });
}

/// The restore waits for more of the backup, the backup for the reader of its output.
#[test]
fn a_signal_leaves_no_copy() {
    let tenure = Tenure::new();
    let [(sqlite, _), _] = local_stores(&tenure);
    prepare(&sqlite);
    std::fs::create_dir(tenure.path("tmp")).unwrap();
    let restore = ["store", "restore", "-", "--yes", "--store", "sqlite:new.db"];
    let backup = ["store", "backup", "-", "--store", &sqlite];
    let copies = || {
        let all = names(&tenure.path(".")).into_iter().chain(names(&tenure.path("tmp")));
        all.filter(|name| name.starts_with(".new.db.") || name.starts_with(".tmp"))
            .collect::<Vec<_>>()
    };
    for signal in [Signal::INT, Signal::TERM] {
        for words in [&restore[..], &backup] {
            let mut command = tenure.command(words);
            command.env("TMPDIR", tenure.path("tmp")).stderr(Stdio::piped());
            let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            // Neither ends by itself: the input stays open, and nobody reads the output.
            let _input = child.stdin.take();
            let pid = Pid::from_child(&child);
            wait_until("it listens", LIMIT, || copies().len() == 1 && handles_signals(pid))
                .unwrap();
            kill_process(pid, signal).unwrap();
            let status = child.wait().unwrap();
            assert_eq!(status.code(), Some(128 + signal.as_raw()), "{words:?}");
            let said = io::read_to_string(child.stderr.unwrap()).unwrap();
            assert_eq!(said, "interrupted: nothing was changed\n");
            assert_eq!(copies(), [""; 0], "{words:?}");
        }
    }
}

/// Whether a process handles TERM.
fn handles_signals(pid: Pid) -> bool {
    let path = format!("/proc/{}/status", pid.as_raw_nonzero());
    let status = std::fs::read_to_string(path).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << (Signal::TERM.as_raw() - 1) != 0
}
