//! `tenure forget`, `tenure store adopt` and `tenure store retention`, on every kind of store.

use serde_json::{Value, json};
use tenure_core::store::{AuditKind, AuditRange, KeptAlive};
use tenure_core::{GroupName, Store};
use testkit::{TEST_POSTGRES, TEST_REDIS, service};

use crate::ls::prepare;
use crate::stores::name;
use crate::tenure::{Ran, Tenure, claim, join, with_store};

/// Returns a new, empty store of each available kind.
fn stores(tenure: &Tenure) -> Vec<String> {
    let mut urls = vec![tenure.sqlite(&format!("{}.db", name()))];
    urls.extend(service(TEST_POSTGRES).map(|server| format!("{server}?schema={}", name())));
    urls.extend(service(TEST_REDIS).map(|server| format!("{server}?prefix={}:", name())));
    urls
}

/// Returns the duties of the only group, from `ls --json`.
fn duties(tenure: &Tenure, url: &str) -> Vec<Value> {
    let seen = tenure.run(&["ls", "--json", "--store", url]).json();
    seen["groups"][0]["duties"].as_array().unwrap().clone()
}

async fn session_lives(store: &dyn Store) -> bool {
    let group = GroupName::new("poll").unwrap();
    !store.members(&group).await.unwrap().is_empty()
}

/// The hint for a read-only file names permissions, for an existing and for a missing file.
#[test]
fn a_read_only_file_has_a_hint_of_its_own() {
    let tenure = Tenure::new();
    tenure.run(&["migrate"]).ok();
    let script = "mount --bind . . && mount -o remount,bind,ro . && cd . && cd \"$PWD\" && \
                  exec \"$0\" \"$@\"";
    let before = ["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_tenure")];
    let new = ["--store", "sqlite:new.db"];
    for words in [
        &["store", "retention", "--history", "3"][..],
        &[&["migrate"], &new[..]].concat(),
        &[&["serve", "--listen", "0"], &new[..]].concat(),
        &[&["run", "--duty", "g/d"], &new[..], &["--", "true"]].concat(),
    ] {
        let ran = tenure.command_of("unshare", &[&before[..], words].concat()).output();
        let ran = Ran::of(ran.unwrap());
        assert_eq!(ran.code, Some(if words[0] == "run" { 125 } else { 1 }), "{ran:?}");
        assert!(ran.stderr.contains("ST006: "), "{ran:?}");
        assert!(ran.stderr.contains("for a file, make it and its folder writable"), "{ran:?}");
    }
}

#[test]
fn a_free_duty_is_forgotten_and_its_epoch_is_not() {
    let tenure = Tenure::new();
    for url in stores(&tenure) {
        prepare(&url);
        let epoch = duties(&tenure, &url)[1]["epoch"].as_u64().unwrap();
        let words = ["forget", "poll/b%2Fc", "poll/never", "--store", &url, "--json"];
        let dry = tenure.run(&[&words[..], &["--dry-run"]].concat()).json();
        assert_eq!(dry["dry_run"], true);
        assert_eq!(
            (&dry["duties"][0]["outcome"], &dry["duties"][0]["floor"]),
            (&"forgotten".into(), &epoch.into())
        );
        assert_eq!(duties(&tenure, &url).len(), 2, "{url}");

        let done = tenure.run(&words).json();
        assert_eq!(done["dry_run"], false);
        let gone = &done["duties"][0];
        assert_eq!((&gone["duty"], &gone["outcome"]), (&"poll/b%2Fc".into(), &"forgotten".into()));
        assert!(gone["floor"].as_u64().unwrap() >= epoch);
        assert_eq!((&gone["holder"], &gone["remaining_ms"]), (&Value::Null, &Value::Null));
        assert_eq!(done["duties"][1]["outcome"], "absent");
        assert_eq!(duties(&tenure, &url).len(), 1, "{url}");
        let text = tenure.run(&["forget", "poll/b%2Fc", "--store", &url]).ok();
        let lines: Vec<Vec<&str>> =
            text.lines().map(|it| it.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["DUTY", "OUTCOME", "FLOOR", "HOLDER"]);
        assert_eq!(lines[1..], [["poll/b%2Fc", "absent", "-", "-"]]);

        with_store(&url, async |store| {
            let three = join(&*store, "poll", "host-3", "").await;
            assert!(claim(&*store, &three, "b/c").await.epoch.get() > epoch);
            let group = GroupName::new("poll").unwrap();
            let entries = store.audit(&group, AuditRange::first(100)).await.unwrap();
            let entry = entries.iter().find(|entry| entry.kind == AuditKind::Forgotten).unwrap();
            assert_eq!(entry.instance.as_str(), "host-1");
            assert_eq!(entry.reason, "forget by operator");
        });
    }
}

#[test]
fn a_held_duty_is_refused_and_the_others_are_told() {
    let tenure = Tenure::new();
    for url in stores(&tenure) {
        prepare(&url);
        for (dry, left) in [(true, 2), (false, 1)] {
            let mut words = vec!["forget", "poll/a", "poll/b%2Fc", "--store", &url];
            words.extend(dry.then_some("--dry-run"));
            let ran = tenure.run(&words);
            assert_eq!(ran.code, Some(1), "{ran:?}");
            let lines: Vec<Vec<&str>> =
                ran.stdout.lines().map(|it| it.split_whitespace().collect()).collect();
            assert_eq!(lines[1], ["poll/a", "held", "-", "host-1"]);
            assert_eq!(lines[2][..2], ["poll/b%2Fc", "forgotten"]);
            let said = "ST025: the duty is held by another instance: poll/a is held by host-1 for ";
            assert!(ran.stderr.contains(said), "{ran:?}");
            let kept = match dry {
                true => "kept: nothing was changed\n",
                false => "kept: the held duties, unchanged; see above for the others\n",
            };
            assert!(ran.stderr.contains(kept), "{ran:?}");
            assert_eq!(duties(&tenure, &url).len(), left);
        }
        let ran = tenure.run(&["forget", "poll/a", "--store", &url, "--json"]);
        assert_eq!(ran.code, Some(1));
        let shown: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(shown["duties"][0]["holder"], "host-1");
        assert!((1..=600_000).contains(&shown["duties"][0]["remaining_ms"].as_u64().unwrap()));
        let error: Value = serde_json::from_str(&ran.stderr).unwrap();
        assert_eq!(error["error"]["code"], "ST025");
    }
}

#[test]
fn what_was_moved_or_damaged_can_be_forgotten() {
    let tenure = Tenure::new();
    let (url, to) = (tenure.sqlite("t.db"), tenure.sqlite("to.db"));
    crate::checkpoint::prepare(&url, &[("a", &["1"]), ("b", &["1"]), ("c", &["1"])]);
    tenure.run(&["checkpoint", "move", &url, &to, "telegram/a"]).ok();
    let pen = rusqlite::Connection::open(tenure.path("t.db")).unwrap();
    let seal = "UPDATE checkpoint SET document = CAST('tenure-seal:1 x' AS BLOB) WHERE duty = 'b'";
    pen.execute_batch(seal).unwrap();
    // Only the history of this checkpoint is left.
    pen.execute_batch("DELETE FROM checkpoint WHERE duty = 'c'").unwrap();
    let words = ["forget", "telegram/a", "telegram/b", "telegram/c", "--json", "--store", &url];
    let dry = tenure.run(&[&words[..], &["--dry-run"]].concat()).json();
    let done = tenure.run(&words).json();
    for n in 0..3 {
        assert_eq!(dry["duties"][n]["outcome"], "forgotten", "{dry}");
        assert_eq!(done["duties"][n]["outcome"], "forgotten", "{done}");
    }

    // A damaged cursor file.
    let path = tenure.path("c.json");
    let url = format!("file:{}#telegram/a", path.display());
    crate::checkpoint::prepare(&url, &[("a", &["{}"]), ("b", &["{}"])]);
    std::fs::write(&path, "{").unwrap();
    let words = ["forget", "telegram/a", "telegram/b", "--json", "--store", &url];
    let dry = tenure.run(&[&words[..], &["--dry-run"]].concat()).json();
    let done = tenure.run(&words).json();
    for n in 0..2 {
        assert_eq!(dry["duties"][n]["outcome"], "forgotten", "{dry}");
        assert_eq!(done["duties"][n]["outcome"], "forgotten", "{done}");
    }
}

#[test]
fn adopting_is_shown_first_and_done_when_confirmed() {
    let tenure = Tenure::new();
    for url in stores(&tenure) {
        prepare(&url);
        let before = duties(&tenure, &url);
        for (words, code) in [(&["--dry-run"][..], 0), (&[], 1)] {
            let words = [&["store", "adopt", "--store", &url][..], words].concat();
            let ran = tenure.run(&words);
            assert_eq!(ran.code, Some(code), "{ran:?}");
            assert!(
                ran.stdout.contains(" would be adopted\nsessions that would end: 2\nduties: 2, ")
            );
            assert!(ran.stderr.contains("nothing was changed"), "{ran:?}");
            let json = tenure.run(&[&words[..], &["--json"]].concat());
            let shown: Value = serde_json::from_str(&json.stdout).unwrap();
            assert_eq!((&shown["adopted"], &shown["incarnation"]), (&false.into(), &Value::Null));
            assert_eq!((&shown["sessions"], &shown["duties"]), (&2.into(), &2.into()));
            // The default is the time in microseconds, after 2020.
            assert!((1_577_836_800_000_000..).contains(&shown["floor"].as_u64().unwrap()));
        }
        assert!(with_store(&url, async |store| session_lives(&*store).await), "{url}");

        let done = tenure.run(&["store", "adopt", "--yes", "--json", "--store", &url]).json();
        assert_eq!((&done["adopted"], &done["sessions"]), (&true.into(), &2.into()));
        assert_eq!(done["duties"], 2);
        assert_eq!(done["incarnation"].as_str().unwrap().len(), 32);
        let floor = done["floor"].as_u64().unwrap();
        assert!((1_577_836_800_000_000..).contains(&floor));
        let after = duties(&tenure, &url);
        assert!(after.iter().all(|duty| duty["holder"] == Value::Null), "{after:?}");
        assert_eq!(after[0]["epoch"], before[0]["epoch"]);
        with_store(&url, async |store| {
            assert!(!session_lives(&*store).await);
            let new = join(&*store, "elsewhere", "host-3", "").await;
            assert!(claim(&*store, &new, "x").await.epoch.get() > floor);
        });
        let text = tenure.run(&["store", "adopt", "--yes", "--store", &url]).ok();
        assert!(text.contains(" was adopted as ") && text.contains("sessions that ended: 1\n"));
    }
}

#[test]
fn a_holder_notices_that_its_store_was_adopted() {
    let tenure = Tenure::new();
    for url in stores(&tenure) {
        with_store(&url, async |store| {
            let one = join(&*store, "poll", "host-1", "").await;
            let hold = claim(&*store, &one, "a").await;
            tenure.run(&["store", "adopt", "--yes", "--floor", "5", "--store", &url]).ok();
            let kept = store.keep_alive(&one, None, std::slice::from_ref(&hold)).await.unwrap();
            assert_eq!(kept, KeptAlive::Ended);
            let two = join(&*store, "poll", "host-2", "").await;
            assert!(claim(&*store, &two, "a").await.epoch > hold.epoch);
        });
    }
}

#[test]
fn a_floor_can_be_given() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    let done = tenure.run(&["store", "adopt", "--yes", "--json", "--floor", "41"]).json();
    assert_eq!(done["floor"], 41);
    // The largest epoch in the store is a lower bound.
    let done = tenure.run(&["store", "adopt", "--yes", "--json", "--floor", "0"]).json();
    assert_eq!(done["floor"], 41);
    for consent in ["--yes", "--dry-run"] {
        let ran = tenure.run(&["store", "adopt", consent, "--floor", "9007199254740991"]);
        ran.refused("ST011");
        assert!(ran.stderr.contains("more than a day above the store's clock"), "{ran:?}");
    }
    let done = tenure.run(&["store", "adopt", "--yes", "--json", "--floor", "0"]).json();
    assert_eq!(done["floor"], 41);
    tenure.run(&["store", "adopt", "--yes", "--floor", "9007199254740992"]).refused("ST011");
}

#[test]
fn retention_is_shown_and_changed() {
    let tenure = Tenure::new();
    for url in stores(&tenure) {
        tenure.run(&["store", "retention", "--store", &url]).refused("ST015");
        tenure.run(&["migrate", "--store", &url]).ok();
        let text = tenure.run(&["store", "retention", "--store", &url]).ok();
        assert_eq!(text, "history: 32 checkpoints\naudit: 100000 entries\n");
        let words = ["store", "retention", "--json", "--store", &url];
        let one = tenure.run(&[&words[..], &["--history", "8"]].concat()).json();
        assert_eq!((&one["history"], &one["audit"]), (&8.into(), &100_000.into()));
        let other = tenure.run(&[&words[..], &["--audit", "5000"]].concat()).json();
        assert_eq!((&other["history"], &other["audit"]), (&8.into(), &5_000.into()));
        let seen = tenure.run(&words).json();
        assert_eq!(seen["history"], 8);
        for bad in [["--history", "0"], ["--history", "1025"], ["--audit", "999"]] {
            let ran = tenure.run(&[&["store", "retention", "--store", &url][..], &bad].concat());
            ran.refused("ST011");
        }
        assert_eq!(tenure.run(&words).json(), seen);
        let slots = with_store(&url, async |store| store.abilities().history_slots);
        assert_eq!(slots, 8);
    }
}

#[test]
fn wrong_usage_is_told_and_does_nothing() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    for words in [
        &["forget"][..],
        &["forget", "--dry-run"],
        &["store"],
        &["store", "adopt", "--yes", "--dry-run"],
        &["store", "adopt", "--floor", "x"],
        &["store", "adopt", "--floor", "-1"],
        &["store", "retention", "--history"],
        &["store", "forget"],
    ] {
        let ran = tenure.run(words);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    }
    // A name that is not a duty's, and a name given twice.
    tenure.run(&["forget", "poll"]).refused("ST011");
    tenure.run(&["forget", "poll/b%2Fc", "poll/b%2Fc"]).refused("ST011");
    for words in [&["forget", "poll/a"][..], &["store", "adopt", "--yes"], &["store", "retention"]]
    {
        let absent = [words, &["--store", "sqlite:typo.db"]].concat();
        tenure.run(&absent).refused("ST015");
    }
    let seen = tenure.run(&["store", "retention", "--json"]).json();
    assert_eq!(seen, json!({ "store": "sqlite:tenure.db", "history": 32, "audit": 100_000 }));
    assert_eq!(duties(&tenure, &url).len(), 2);
}
