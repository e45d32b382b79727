//! `--state`: a state file that follows the store.

mod in_place;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Signal, kill_process};
use serde_json::Value;
use tenure_core::Clock;
use tenure_store::BootClock;
use testkit::{Proxy, RedisOptions, RedisServer, TEST_REDIS, service, wait_until};

use crate::api::shared_stores;
use crate::running::{LIMIT, STAY, all_gone};
use crate::tenure::{Ran, Tenure};

/// Arguments of `tenure run --state` for the duty `g/d`, with a TTL that a busy machine keeps.
fn run_with<'a>(
    store: &'a str,
    file: &'a str,
    options: &[&'a str],
    script: &'a str,
) -> Vec<&'a str> {
    let before = ["run", "--store", store, "--duty", "g/d", "--state", file];
    let ttl = if options.contains(&"--ttl") { &[][..] } else { &["--ttl", "30s"] };
    [&before[..], ttl, options, &["--", "sh", "-c", script]].concat()
}

fn run(tenure: &Tenure, file: &str, options: &[&str], script: &str) -> Ran {
    tenure.run(&run_with(&tenure.sqlite("tenure.db"), file, options, script))
}

/// Returns the checkpoint as text; `None` if there is none.
fn stored_in(tenure: &Tenure, store: &str) -> Option<String> {
    let ran = tenure.run(&["checkpoint", "get", "g/d", "--store", store]);
    (ran.code == Some(0)).then_some(ran.stdout)
}

fn stored(tenure: &Tenure) -> Option<String> {
    stored_in(tenure, &tenure.sqlite("tenure.db"))
}

/// Number of versions of the checkpoint.
fn versions(tenure: &Tenure) -> u64 {
    let history = tenure.run(&["checkpoint", "history", "g/d", "--json"]).json();
    history["checkpoints"][0]["version"].as_u64().unwrap()
}

/// Shell function that replaces the file in one step.
const WRITE: &str = "write() { echo \"{\\\"n\\\": $1}\" > new; mv new cursor.json; }";

#[test]
fn the_next_host_continues_with_the_file_of_the_last() {
    for store in shared_stores(&Tenure::new()) {
        let hosts = [Tenure::new(), Tenure::new()];
        let script = format!("{WRITE}; cat cursor.json 2> none; write $N; exit 7");
        for (n, tenure) in hosts.iter().chain(&hosts).enumerate() {
            let mut command = tenure.command(&run_with(&store, "cursor.json", &[], &script));
            let ran = Ran::of(command.env("N", n.to_string()).output().unwrap());
            assert_eq!(ran.code, Some(7), "{ran:?}");
            let before = if n == 0 { String::new() } else { format!("{{\"n\": {}}}\n", n - 1) };
            assert_eq!(ran.stdout, before, "{store}: {ran:?}");
            assert_eq!(stored_in(tenure, &store), Some(format!("{{\"n\": {n}}}\n")));
        }
        // What was there before is kept beside it.
        assert_eq!(hosts[0].text("cursor.json.before"), "{\"n\": 0}\n");
        assert_eq!(hosts[0].text("cursor.json"), "{\"n\": 2}\n");
    }
}

#[test]
fn a_file_that_the_store_does_not_know_is_refused_or_imported() {
    let tenure = Tenure::new();
    std::fs::write(tenure.path("cursor.json"), "{\"n\": 41}").unwrap();
    let ran = run(&tenure, "cursor.json", &[], "echo ran");
    assert_eq!((ran.code, &*ran.stdout), (Some(125), ""), "{ran:?}");
    for said in ["DT019: ", "cursor.json exists", "--state-import", "was not changed"] {
        assert!(ran.stderr.contains(said), "{said}: {ran:?}");
    }
    assert_eq!((stored(&tenure), tenure.text("cursor.json")), (None, "{\"n\": 41}".to_owned()));
    let ran = run(&tenure, "cursor.json", &["--state-import"], "cat cursor.json");
    assert_eq!(ran.stdout, "{\"n\": 41}", "{ran:?}");
    assert_eq!(stored(&tenure), Some("{\"n\": 41}".to_owned()));
    // From then on the option does nothing.
    std::fs::write(tenure.path("cursor.json"), "{\"n\": 7}").unwrap();
    let ran = run(&tenure, "cursor.json", &["--state-import"], "cat cursor.json");
    assert_eq!(ran.stdout, "{\"n\": 41}", "{ran:?}");
    assert_eq!(tenure.text("cursor.json.before"), "{\"n\": 7}");
}

#[test]
fn a_file_that_cannot_be_used_is_refused_and_nothing_is_lost() {
    let tenure = Tenure::new();
    let large = "x".repeat(256 * 1024 + 1);
    for (name, content) in
        [("real", "1"), ("empty", ""), ("large", &*large), ("bad.json", "{\"n\":")]
    {
        std::fs::write(tenure.path(name), content).unwrap();
    }
    std::fs::create_dir(tenure.path("folder")).unwrap();
    std::os::unix::fs::symlink("real", tenure.path("link")).unwrap();
    std::os::unix::fs::symlink("nowhere", tenure.path("dangling")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        tenure.path("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    for (file, why) in [
        ("folder", "folder: it is not a regular file"),
        ("pipe", "pipe: it is not a regular file"),
        ("link", "link: it is a symbolic link; name the file itself"),
        ("dangling", "dangling: it is a symbolic link; name the file itself"),
        ("large", "large: it has 262145 bytes, and the limit is 262144"),
        ("empty", "empty: it is empty, and the store has no checkpoint"),
        ("bad.json", "bad.json: it is not valid JSON"),
        ("none/cursor.json", "cannot watch the state file"),
    ] {
        let ran = run(&tenure, file, &["--state-import"], "echo ran > ran");
        assert_eq!(ran.code, Some(125), "{ran:?}");
        assert!(ran.stderr.contains(why), "{why}: {ran:?}");
        assert_eq!(stored(&tenure), None, "{file}");
    }
    assert_eq!((tenure.text("large"), tenure.text("real")), (large, "1".to_owned()));
    // The store has a checkpoint that cannot be put into place.
    run(&tenure, "real", &["--state-import"], "true");
    let ran = run(&tenure, "/proc/cursor.json", &[], "echo ran > ran");
    assert!(ran.stderr.contains("DT018: ") && ran.stderr.contains("cannot be replaced"), "{ran:?}");
    assert!(!tenure.path("ran").exists());
}

/// Runs a command without the right to ignore permissions, which root has.
fn run_unprivileged(tenure: &Tenure, words: &[&str]) -> Ran {
    if !rustix::process::geteuid().is_root() {
        return tenure.run(words);
    }
    let drop = "--bounding-set=-dac_override,-dac_read_search";
    let words = [&[drop, env!("CARGO_BIN_EXE_tenure")], words].concat();
    Ran::of(tenure.command_of("setpriv", &words).output().unwrap())
}

#[test]
fn a_file_without_permission_is_refused_and_nothing_is_lost() {
    let tenure = Tenure::new();
    run(&tenure, "cursor.json", &[], "echo 1 > cursor.json").ok();
    let mode = |name: &str, mode: u32| {
        std::fs::set_permissions(tenure.path(name), Permissions::from_mode(mode)).unwrap();
    };
    std::fs::write(tenure.path("cursor.json"), "7").unwrap();
    mode("cursor.json", 0o000);
    std::fs::create_dir(tenure.path("folder")).unwrap();
    std::fs::write(tenure.path("folder/other.json"), "8").unwrap();
    mode("folder", 0o555);
    let store = tenure.sqlite("tenure.db");
    for (file, why) in [
        ("cursor.json", "cursor.json: Permission denied"),
        ("folder/other.json", "it cannot be kept as folder/other.json.before: Permission denied"),
        ("folder/new.json", "folder/new.json: it cannot be replaced: Permission denied"),
    ] {
        let ran = run_unprivileged(&tenure, &run_with(&store, file, &[], "echo ran"));
        assert_eq!((ran.code, &*ran.stdout), (Some(125), ""), "{ran:?}");
        assert!(ran.stderr.contains("DT018: ") && ran.stderr.contains(why), "{why}: {ran:?}");
    }
    mode("cursor.json", 0o600);
    mode("folder", 0o700);
    assert_eq!(
        (tenure.text("cursor.json"), tenure.text("folder/other.json")),
        ("7".into(), "8".into())
    );
    assert_eq!(stored(&tenure).as_deref(), Some("1\n"));
    // A previous file is replaced, even if it is read-only.
    std::fs::write(tenure.path("cursor.json.before"), "6").unwrap();
    mode("cursor.json.before", 0o400);
    let ran = run_unprivileged(&tenure, &run_with(&store, "cursor.json", &[], "cat cursor.json"));
    assert_eq!(
        (ran.stdout.as_str(), tenure.text("cursor.json.before")),
        ("1\n", "7".into()),
        "{ran:?}"
    );
}

/// What is at `FILE.before` may belong to others.
#[test]
fn the_file_before_replaces_only_a_file() {
    let tenure = Tenure::new();
    run(&tenure, "cursor.json", &[], "echo 1 > cursor.json").ok();
    std::fs::write(tenure.path("other"), "other").unwrap();
    let before = tenure.path("cursor.json.before");
    let make: [&dyn Fn(); 4] = [
        &|| std::fs::create_dir(&before).unwrap(),
        &|| std::os::unix::fs::symlink("other", &before).unwrap(),
        &|| std::os::unix::fs::symlink("nowhere", &before).unwrap(),
        &|| rustix::fs::mkfifoat(rustix::fs::CWD, &before, rustix::fs::Mode::RWXU).unwrap(),
    ];
    for make in make {
        make();
        std::fs::write(tenure.path("cursor.json"), "7").unwrap();
        let ran = run(&tenure, "cursor.json", &[], "echo ran");
        assert_eq!((ran.code, &*ran.stdout), (Some(125), ""), "{ran:?}");
        let why = "cannot be kept as cursor.json.before: it is not a regular file";
        assert!(ran.stderr.contains(why), "{ran:?}");
        assert_eq!(
            (tenure.text("cursor.json"), tenure.text("other")),
            ("7".into(), "other".into())
        );
        std::fs::remove_file(&before).or_else(|_| std::fs::remove_dir(&before)).unwrap();
    }
}

/// A program that breaks its file keeps its checkpoint.
#[test]
fn what_the_program_makes_of_its_file_does_not_replace_the_checkpoint() {
    let tenure = Tenure::new();
    run(&tenure, "cursor.json", &[], "echo 1 > new; mv new cursor.json").ok();
    for (script, why) in [
        ("rm cursor.json", ""),
        ("rm cursor.json; mkdir cursor.json", "it is not a regular file"),
        ("rm cursor.json; mkfifo cursor.json", "it is not a regular file"),
        ("rm cursor.json; echo 2 > other; ln -s other cursor.json", "it is a symbolic link"),
        ("head -c 262145 /dev/zero > big; mv big cursor.json", "it has 262145 bytes"),
        ("printf '{\"n\":' > cursor.json", "it is not valid JSON"),
        (": > cursor.json", "it is not valid JSON"),
    ] {
        let ran = run(&tenure, "cursor.json", &[], &format!("cat cursor.json; {script}; exit 4"));
        assert_eq!((ran.code, &*ran.stdout), (Some(4), "1\n"), "{script}: {ran:?}");
        assert!(why.is_empty() || ran.stderr.contains(why), "{why}: {ran:?}");
        assert_eq!(stored(&tenure).as_deref(), Some("1\n"), "{script}");
        // What cannot become the file before is refused at the next start, and stays.
        let refused =
            why.starts_with("it is not a reg") || why.contains("link") || why.contains("bytes");
        let ran = run(&tenure, "cursor.json", &[], "cat cursor.json");
        assert_eq!(ran.code, Some(if refused { 125 } else { 0 }), "{script}: {ran:?}");
        if refused {
            let path = tenure.path("cursor.json");
            std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir(&path)).unwrap();
        }
    }
}

/// A file that others replace all the time is read whole, or not at all.
#[test]
fn a_file_that_is_replaced_while_it_is_read_is_whole() {
    let tenure = Tenure::new();
    let contents = [b'a', b'b'].map(|byte| vec![byte; 200_000]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for content in contents.iter().cycle() {
                std::fs::write(tenure.path("new"), content).unwrap();
                std::fs::rename(tenure.path("new"), tenure.path("cursor")).unwrap();
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let there = || tenure.path("cursor").exists();
        wait_until("the file is there", LIMIT, there).unwrap();
        for n in 0..10 {
            let store = tenure.sqlite(&format!("{n}.db"));
            let ran = tenure.run(&run_with(&store, "cursor", &["--state-import"], "true"));
            let changing = ran.stderr.contains("it keeps changing while it is read");
            assert_eq!(ran.code, Some(if changing { 125 } else { 0 }), "{ran:?}");
            let stored = stored_in(&tenure, &store).map(String::into_bytes);
            assert!(stored.is_none_or(|stored| contents.contains(&stored)));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_file_of_the_store_is_no_state_file() {
    let tenure = Tenure::new();
    for file in ["cursor.json", "./cursor.json"] {
        let ran = tenure.run(&run_with("file:cursor.json", file, &[], "true"));
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("is the cursor of the store"), "{ran:?}");
    }
    assert!(!tenure.path("cursor.json").exists());
    for (store, file) in [
        ("file:cursor.json", "cursor.json.partition-1"),
        ("file:cursor.json", "./cursor.json.partition-{}"),
        ("sqlite:tenure.db", "tenure.db"),
        ("sqlite:tenure.db", "./tenure.db-wal"),
    ] {
        let ran = tenure.run(&run_with(store, file, &["--state-import"], "true"));
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("is a file of the store"), "{ran:?}");
    }
}

/// A file of several duties would be overwritten by each of them.
#[test]
fn several_duties_need_a_file_each() {
    let tenure = Tenure::new();
    let words = |file| {
        [
            "run",
            "--group",
            "g",
            "--shards",
            "2",
            "--state",
            file,
            "--",
            "sh",
            "-c",
            "echo $TENURE_SHARD > new-{}; mv new-{} at-{}",
        ]
    };
    let ran = tenure.run(&words("cursor.json"));
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("cursor-{}.json"), "{ran:?}");
    let running = tenure.start("a", &words("at-{}"));
    let get = |shard: &str| tenure.run(&["checkpoint", "get", shard]);
    let both = || ["g/0", "g/1"].iter().all(|shard| get(shard).code == Some(0));
    wait_until("both are stored", LIMIT, both).unwrap();
    running.signal(Signal::TERM);
    running.exits(128 + 15);
    assert_eq!((get("g/0").ok(), get("g/1").ok()), ("0\n".to_owned(), "1\n".to_owned()));
}

/// One commit at a time, the newest content next, at most five a second.
#[test]
fn a_file_that_changes_all_the_time_is_stored_now_and_then() {
    let tenure = Tenure::new();
    let script = format!("{WRITE}; n=0; while [ $n -lt 400 ]; do n=$((n + 1)); write $n; done");
    let began = BootClock.now();
    run(&tenure, "cursor.json", &[], &script).ok();
    let took = BootClock.now().since(began);
    assert_eq!(stored(&tenure).as_deref(), Some("{\"n\": 400}\n"));
    let most = took.as_millis() as u64 / 200 + 2;
    assert!(versions(&tenure) <= most, "{} versions in {took:?}", versions(&tenure));
    // It is stored also while it never rests.
    let store = tenure.sqlite("tenure.db");
    let script = format!("{WRITE}; while :; do n=$((n + 1)); write $n; done");
    let before = versions(&tenure);
    let running = tenure.start("a", &run_with(&store, "cursor.json", &[], &script));
    wait_until("some is stored", LIMIT, || versions(&tenure) >= before + 3).unwrap();
    running.signal(Signal::TERM);
    running.exits(128 + 15);
    // Every stored version was a whole one.
    let history = tenure.run(&["checkpoint", "history", "g/d", "--json"]).json();
    for old in history["checkpoints"].as_array().unwrap() {
        assert!(old["document"]["n"].is_u64(), "{old}");
    }
}

/// What the old holder has written last is what the next one begins with, however it writes and
/// whoever ends it.
#[test]
fn a_planned_handover_loses_nothing() {
    for (write, drained) in [("write 99", false), ("echo '{\"n\": 99}' > cursor.json", true)] {
        let (tenure, other) = (Tenure::new(), Tenure::new());
        let store = tenure.sqlite("tenure.db");
        let script = format!("{WRITE}; trap '{}; exit 0' TERM", write.replace('\'', "'\\''"));
        let script = format!("{script}; write 1; echo >> ready; {STAY}");
        let first = ["--name", "first"];
        let first = tenure.start("a", &run_with(&store, "cursor.json", &first, &script));
        tenure.lines("ready", 1);
        let script = format!("cp cursor.json got.new; mv got.new got; {STAY}");
        let second = other.start("b", &run_with(&store, "cursor.json", &[], &script));
        other.said(&second, "\"event\":\"standby\"");
        if drained {
            tenure.run(&["drain", "g", "first"]).ok();
        } else {
            first.signal(Signal::TERM);
        }
        assert_eq!(other.lines("got", 1), ["{\"n\": 99}"]);
        if drained {
            first.signal(Signal::TERM);
            first.exits(128 + 15);
        } else {
            first.exits(0);
        }
        second.signal(Signal::TERM);
        second.exits(128 + 15);
    }
}

/// A state that the store refuses does not keep the duty for ever, and not from a signal.
#[test]
fn a_state_that_cannot_be_stored_does_not_hold_up_the_end() {
    for (ttl, asked) in [("3s", false), ("1h", true)] {
        let tenure = Tenure::new();
        tenure.run(&["migrate"]).ok();
        let connection = rusqlite::Connection::open(tenure.path("tenure.db")).unwrap();
        let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON checkpoint
                      BEGIN SELECT RAISE(ABORT, 'refused'); END";
        connection.execute_batch(refuse).unwrap();
        drop(connection);
        let script = "echo 1 > new; mv new cursor; exit 4";
        let (store, options) = (tenure.sqlite("tenure.db"), ["--ttl", ttl, "--drain", "1s"]);
        let running = tenure.start("a", &run_with(&store, "cursor", &options, script));
        tenure.said(&running, "\"event\":\"commit_refused\"");
        if asked {
            running.signal(Signal::TERM);
        }
        running.exits(4);
        assert!(tenure.text("a.err").contains("the last state is not stored"));
        assert_eq!(tenure.text("cursor"), "1\n");
    }
}

/// After `kill -9` of everything, the store has what was committed, and the next host gets it.
#[test]
fn a_killed_host_is_continued_from_what_it_has_stored() {
    let (tenure, other) = (Tenure::new(), Tenure::new());
    let store = tenure.sqlite("tenure.db");
    let script = format!("{WRITE}; n=0; echo $$ > pid; while :; do n=$((n + 1)); write $n; done");
    let ttl = ["--ttl", "3s"];
    let first = tenure.start("a", &run_with(&store, "cursor.json", &ttl, &script));
    let n = |text: &str| serde_json::from_str::<Value>(text).ok()?["n"].as_u64();
    let at = || stored(&tenure).and_then(|text| n(&text)).unwrap_or(0);
    wait_until("some is stored", LIMIT, || at() >= 3).unwrap();
    let guard = first.guard();
    for pid in [guard, first.pid()] {
        kill_process(pid, Signal::STOP).unwrap();
    }
    let known = at();
    for pid in [guard, first.pid()] {
        kill_process(pid, Signal::KILL).unwrap();
    }
    wait_until("the program is gone", LIMIT, || all_gone(&tenure.pids("pid", 1))).unwrap();
    let ran = other.run(&run_with(&store, "cursor.json", &ttl, "cat cursor.json"));
    let got = n(&ran.ok()).unwrap();
    // The store may lag behind the file, and never leads it.
    assert!(got >= known && got <= n(&tenure.text("cursor.json")).unwrap(), "{got} {known}");
}

/// While the store is away the program goes on, and the newest content is stored later.
#[test]
fn what_is_written_while_the_store_is_away_is_stored_later() {
    if service(TEST_REDIS).is_none() {
        return;
    }
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let (tenure, store) = (Tenure::new(), format!("redis://127.0.0.1:{}/0", proxy.port()));
    let script = format!(
        "{WRITE}; write 1; echo >> ready; read go < go; write 2; write 3; echo >> ready; {STAY}"
    );
    rustix::fs::mkfifoat(rustix::fs::CWD, tenure.path("go"), rustix::fs::Mode::RWXU).unwrap();
    let options = ["--ttl", "60s"];
    let running = tenure.start("a", &run_with(&store, "cursor.json", &options, &script));
    tenure.lines("ready", 1);
    let direct = server.url();
    let reaches = |content: &str| {
        let seen = || stored_in(&tenure, &direct).as_deref() == Some(content);
        wait_until(content, LIMIT, seen).unwrap();
    };
    reaches("{\"n\": 1}\n");
    proxy.cut();
    std::fs::write(tenure.path("go"), "\n").unwrap();
    tenure.lines("ready", 2);
    tenure.said(&running, "\"event\":\"commit_refused\"");
    proxy.restore().unwrap();
    reaches("{\"n\": 3}\n");
    running.signal(Signal::TERM);
    running.exits(128 + 15);
}

#[test]
fn each_target_of_a_poll_has_its_state() {
    let tenure = Tenure::new();
    let script = "n=$(cat at-$1 2> none || echo 0); echo $((n + 1)) > new-$1; mv new-$1 at-$1";
    let words = ["poll", "--targets", "list:a,b", "--every", "300ms", "--state", "at-{}"];
    let words = [&words[..], &["--", "sh", "-c", script, "sh", "{}"]].concat();
    let count = |target: &str| {
        let ran = tenure.run(&["checkpoint", "get", &format!("poll/{target}")]);
        ran.stdout.trim().parse::<u64>().unwrap_or(0)
    };
    let mut last = [0, 0];
    for round in 0..2 {
        let running = tenure.start("a", &words);
        let more = || count("a") >= last[0] + 2 && count("b") >= last[1] + 2;
        wait_until("both are polled", LIMIT, more).unwrap();
        running.signal(Signal::TERM);
        running.exits(0);
        last = [count("a"), count("b")];
        // The store, not the file, says where the next one begins.
        std::fs::write(tenure.path("at-a"), "1000\n").unwrap();
        assert!(last[0] < 1000, "{round}: {last:?}");
    }
}
