//! `tenure pause`, `resume`, `pin` and `evict`, and refusals common to all operator commands.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_core::engine::{DrainMode, GroupConfig};
use tenure_core::{Document, DutyId, GroupName, InstanceId, Label, Version};

use crate::tenure::{Ran, Tenure, claim, join, join_for, with_store};

/// Note of a member with room for two duties.
const NOTE: &str = "tenure=1\nweight=1\nroom=2\nzone=eu\nname=one\nview=0\n";

/// Creates a group: `host-1` holds `a` and `b`, `host-2` holds `c`, and `d` is free.
pub fn prepare(url: &str) {
    with_store(url, async |store| {
        let one = join(&*store, "poll", "host-1", NOTE).await;
        let two = join(&*store, "poll", "host-2", &NOTE.replace("name=one", "name=two")).await;
        for id in ["a", "b"] {
            claim(&*store, &one, id).await;
        }
        claim(&*store, &two, "c").await;
        let free = claim(&*store, &two, "d").await;
        crate::tenure::release(&*store, &two, free).await;
    });
}

/// Returns the group's document without its history, and its version.
pub fn group(url: &str, name: &str) -> (Version, GroupConfig) {
    with_store(url, async |store| {
        let stored = store.group_document(&GroupName::new(name).unwrap()).await.unwrap();
        let mut group = GroupConfig::read(&stored).unwrap();
        group.unknown.retain(|line| !line.starts_with("was"));
        (stored.version, group)
    })
}

/// Changes the document, as another process could.
pub fn write(url: &str, name: &str, change: impl FnOnce(&mut GroupConfig)) {
    let (version, mut group) = group(url, name);
    change(&mut group);
    with_store(url, async |store| {
        let (name, document) = (GroupName::new(name).unwrap(), group.document().unwrap());
        store.replace_group_document(&name, version, &document).await.unwrap();
    });
}

pub fn instance(name: &str) -> InstanceId {
    InstanceId::new(name).unwrap()
}

/// Returns the directives in force, from `ls --json`.
pub fn in_force(tenure: &Tenure, url: &str, name: &str) -> Value {
    tenure.run(&["ls", name, "--json", "--store", url]).json()["groups"][0]["in_force"].clone()
}

#[test]
fn names_that_nobody_knows_are_refused_and_nothing_changes() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    for words in [
        &["pause", "poll"][..],
        &["resume", "poll/a"],
        &["pin", "poll"],
        &["pin", "poll/a", "host-1"],
        &["drain", "poll", "host-1"],
        &["evict", "poll", "host-1"],
    ] {
        tenure.run(words).refused("ST015");
    }
    prepare(&url);
    let before = group(&url, "poll");
    for words in [
        &["pause", "typo"][..],
        &["pause", "poll/typo"],
        &["resume", "typo/a"],
        &["resume", "poll/typo"],
        &["pin", "typo"],
        &["pin", "poll/typo", "host-1"],
        &["pin", "poll/a", "host-3"],
        &["pin", "poll/typo", "--remove"],
        &["drain", "typo", "host-1"],
        &["drain", "poll", "host-3"],
        &["drain", "poll", "host-3", "--undo"],
        &["evict", "typo", "host-1"],
        &["evict", "poll", "host-3"],
    ] {
        tenure.run(words).refused("DT010");
        let dry = [words, &["--dry-run"]].concat();
        tenure.run(&dry).refused("DT010");
        let ran = tenure.run(&[words, &["--json"]].concat());
        let error: Value = serde_json::from_str(&ran.stderr).unwrap();
        assert_eq!((ran.code, &error["error"]["code"]), (Some(1), &"DT010".into()), "{ran:?}");
    }
    for words in [
        &["pause"][..],
        &["pin", "poll/a"],
        &["pin", "poll", "host-1"],
        &["pin", "poll/a", "host-1", "--zone", "eu"],
        &["pin", "poll/a", "host-1", "--remove"],
        &["drain", "poll"],
        &["drain", "poll", "host-1", "--undo", "--force"],
        &["drain", "poll", "host-1", "--timeout", "7"],
        &["pause", "postgres://me:s3cret@h/db"],
        &["evict", "poll", "postgres://me:s3cret@h/db"],
    ] {
        let ran = tenure.run(words);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        ran.hides("s3cret");
    }
    tenure.run(&["pause", "poll/a/b%zz"]).refused("ST011");
    assert_eq!(group(&url, "poll"), before);
    // An instance that was not evicted can still join.
    with_store(&url, async |store| join(&*store, "poll", "host-3", NOTE).await);
}

#[test]
fn a_duty_is_paused_and_resumed() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    let dry = tenure.run(&["pause", "poll/a", "--dry-run"]);
    assert_eq!(dry.stderr, "a dry run: nothing was changed\n");
    assert_eq!(dry.ok(), "poll/a would be paused\nhost-1 would stop poll/a\n");
    assert_eq!(group(&url, "poll").0, Version::ZERO);
    assert_eq!(tenure.run(&["pause", "poll/a"]).ok(), "poll/a is paused\nhost-1 stops poll/a\n");
    let paused = group(&url, "poll");
    let again = tenure.run(&["pause", "poll/a"]).ok();
    assert_eq!(again, "poll/a was already paused\nhost-1 stops poll/a\n");
    let json = tenure.run(&["pause", "poll/d", "--dry-run", "--json"]).json();
    let expected = json!({
        "dry_run": true, "group": "poll", "duty": "poll/d", "changed": true, "pause_all": false,
        "paused": ["poll/a", "poll/d"], "held": [], "pruned": [],
    });
    assert_eq!(json, expected);
    assert_eq!(group(&url, "poll"), paused);

    let text = tenure.run(&["pause", "poll"]).ok();
    assert_eq!(text, "group poll is paused\n3 duties stop, on host-1, host-2\n");
    let text = tenure.run(&["pause", "poll/d"]).ok();
    assert_eq!(text, "poll/d is paused\nno member works on it now\n");
    let text = tenure.run(&["ls", "poll"]).ok();
    let shown = "\nIN_FORCE   ON      HOW\npause-all  poll    -\npause      poll/a  -\n";
    assert!(text.contains(shown), "{text}");
    let text = tenure.run(&["resume", "poll/d"]).ok();
    assert_eq!(
        text,
        "poll/d is resumed\ngroup poll is still paused as a whole: run `tenure resume poll`\n"
    );
    let text = tenure.run(&["resume", "poll"]).ok();
    assert_eq!(text, "group poll is resumed\nstill paused individually: poll/a\n");
    let json = tenure.run(&["resume", "poll/a", "--json"]).json();
    assert_eq!((&json["changed"], &json["paused"]), (&true.into(), &json!([])));
    assert_eq!(json["held"], json!([{ "duty": "poll/a", "holder": "host-1" }]));
    let version = group(&url, "poll").0;
    assert_eq!(tenure.run(&["resume", "poll/a"]).ok(), "poll/a was not paused\n");
    assert_eq!(tenure.run(&["resume", "poll"]).ok(), "group poll was not paused\n");
    assert_eq!(group(&url, "poll"), (version, GroupConfig::default()));
}

#[test]
fn a_duty_is_pinned_and_pins_are_listed() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    let dry = tenure.run(&["pin", "poll/a", "host-2", "--dry-run"]).ok();
    assert_eq!(dry, "poll/a would be pinned to instance:host-2\nhost-1 would hand it over\n");
    assert_eq!(group(&url, "poll").0, Version::ZERO);
    let text = tenure.run(&["pin", "poll/a", "host-2"]).ok();
    assert_eq!(text, "poll/a is pinned to instance:host-2\nhost-1 hands it over\n");
    let text = tenure.run(&["pin", "poll/c", "--zone", "eu"]).ok();
    assert_eq!(text, "poll/c is pinned to zone:eu\n");
    let text = tenure.run(&["pin", "poll/d", "--name", "th ree"]).ok();
    let waits = "no member there takes duties now: until then any member may hold it\n";
    assert_eq!(text, format!("poll/d is pinned to name:th%20ree\n{waits}"));
    let version = group(&url, "poll").0;
    let text = tenure.run(&["pin", "poll/c", "--zone", "eu"]).ok();
    assert_eq!(text, "poll/c was already pinned to zone:eu\n");
    let text = tenure.run(&["pin", "poll"]).ok();
    let lines: Vec<Vec<&str>> = text.lines().map(|it| it.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["DUTY", "PINNED_TO", "HOLDER"]);
    assert_eq!(lines[1], ["poll/a", "instance:host-2", "host-1"]);
    assert_eq!(lines[2..], [["poll/c", "zone:eu", "host-2"], ["poll/d", "name:th%20ree", "-"]]);
    let json = tenure.run(&["pin", "poll", "--json"]).json();
    let first = json!({ "duty": "poll/a", "to": "instance:host-2", "holder": "host-1" });
    assert_eq!((&json["group"], &json["pins"][0]), (&"poll".into(), &first));
    assert_eq!(group(&url, "poll").0, version);

    let json = tenure.run(&["pin", "poll/a", "host-1", "--replace", "--json"]).json();
    let expected = json!({
        "dry_run": false, "group": "poll", "duty": "poll/a", "changed": true, "pruned": [],
        "to": "instance:host-1", "before": "instance:host-2", "holder": "host-1",
    });
    assert_eq!(json, expected);
    let text = tenure.run(&["pin", "poll/a", "--remove"]).ok();
    assert_eq!(text, "poll/a is no longer pinned; it stays with its holder\n");
    assert_eq!(tenure.run(&["pin", "poll/a", "--remove"]).ok(), "poll/a is not pinned\n");
    let left = json!([
        { "what": "pin", "on": "poll/c", "how": "zone:eu" },
        { "what": "pin", "on": "poll/d", "how": "name:th%20ree" },
    ]);
    assert_eq!(in_force(&tenure, &url, "poll"), left);
}

#[test]
fn pins_that_cannot_be_followed_are_refused() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    with_store(&url, async |store| {
        join(&*store, "poll", "host-3", &NOTE.replace("weight=1", "weight=0")).await;
        join(&*store, "poll", "host-4", &NOTE.replace("view", "only=d\nview")).await;
        join(&*store, "poll", "host-5", "no engine").await;
        join(&*store, "poll", "host-6", &NOTE.replace("view", "takes=0\nview")).await;
        join(&*store, "poll", "host-7", &NOTE.replace("eu", "us")).await;
        join(&*store, "poll", "host-8", NOTE).await;
    });
    tenure.run(&["pin", "poll/a", "host-1"]).ok();
    tenure.run(&["pin", "poll/d", "host-4"]).ok();
    write(&url, "poll", |group| {
        group.drained.insert(instance("host-2"), DrainMode::HandOver);
        group.cordoned.insert(instance("host-8"));
        group.weights.insert(instance("host-7"), 0);
    });
    let before = group(&url, "poll");
    let refused = |words: &[&str], why: &str| {
        let words = [&["pin"], words].concat();
        for words in [&words[..], &[&words[..], &["--dry-run"]].concat()] {
            let ran = tenure.run(words);
            ran.refused("DT012");
            assert!(ran.stderr.contains(why), "{why:?} is not in {ran:?}");
        }
        assert_eq!(group(&url, "poll"), before);
    };
    refused(&["poll/a", "--zone", "eu"], "poll/a is pinned to instance:host-1; --replace");
    refused(&["poll/b", "host-2"], "host-2 is drained");
    refused(&["poll/b", "host-3"], "host-3 has weight 0");
    refused(&["poll/b", "host-4"], "host-4 only takes poll/d");
    refused(&["poll/b", "host-5"], "host-5 takes no duties");
    refused(&["poll/b", "host-6"], "host-6 takes no duties now");
    refused(&["poll/b", "host-7"], "host-7 has weight 0");
    refused(&["poll/b", "host-8"], "host-8 is cordoned");
    // Such a pin is refused as a replacement, too.
    refused(&["poll/a", "host-2", "--replace"], "host-2 is drained");
}

#[test]
fn more_is_not_pinned_than_there_is_room_for() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    // Two duties fit, pinned by instance or by the name of the same member.
    tenure.run(&["pin", "poll/a", "host-1"]).ok();
    tenure.run(&["pin", "poll/b", "--name", "one"]).ok();
    let before = group(&url, "poll");
    for words in [["poll/c", "host-1"].as_slice(), &["poll/c", "--name", "one"]] {
        let ran = tenure.run(&[&["pin"], words].concat());
        ran.refused("DT012");
        assert!(ran.stderr.contains("3 duties would be pinned to "), "{ran:?}");
        assert!(ran.stderr.contains(", which has room for 2"), "{ran:?}");
    }
    // A plan counts existing pins and its own together.
    for pins in [&["--pin", "c=host-1"][..], &["--pin", "c=host-2", "--pin", "d=host-1"]] {
        let ran = tenure.run(&[&["plan", "poll", "--out", "plan"], pins].concat());
        ran.refused("DT012");
        let why = "3 duties would be pinned to instance:host-1, which has room for 2";
        assert!(ran.stderr.contains(why) && !tenure.path("plan").exists(), "{ran:?}");
    }
    tenure.run(&["plan", "poll", "--pin", "c=host-2", "--pin", "d=host-2"]).ok();
    assert_eq!(group(&url, "poll"), before);
    // The zone has room for four.
    tenure.run(&["pin", "poll/c", "--zone", "eu"]).ok();
    tenure.run(&["pin", "poll/a", "host-1"]).ok();
}

#[test]
fn what_is_in_force_is_shown_and_what_is_stale_goes() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    tenure.run(&["pin", "poll/b", "--zone", "eu"]).ok();
    write(&url, "poll", |group| {
        group.all_paused = true;
        group.drained.insert(instance("host-1"), DrainMode::Anyway);
        group.weights.insert(instance("host-2"), 3);
        for gone in ["gone-1", "gone-2"] {
            group.drained.insert(instance(gone), DrainMode::HandOver);
            group.weights.insert(instance(gone), 7);
            group.cordoned.insert(instance(gone));
        }
        let pin = tenure_core::roster::Pin::Instance(instance("gone-1"));
        group.pins.insert(DutyId::new("a").unwrap(), pin);
        group.unknown.push("of a newer version".to_owned());
    });
    let line =
        |what: &str, on: &str, how: Option<&str>| json!({ "what": what, "on": on, "how": how });
    let shown = in_force(&tenure, &url, "poll");
    assert_eq!(shown.as_array().unwrap().len(), 11, "{shown}");
    let version = group(&url, "poll").0;
    // A command without a change does not write.
    tenure.run(&["pause", "poll"]).ok();
    assert_eq!(group(&url, "poll").0, version);
    let ran = tenure.run(&["resume", "poll"]);
    assert!(ran.stderr.contains("dropped directives of instances that ended: 7\n"), "{ran:?}");
    ran.ok();
    let left = json!([
        line("pin", "poll/b", Some("zone:eu")),
        line("drain", "host-1", Some("anyway")),
        line("weight", "host-2", Some("3")),
    ]);
    assert_eq!(in_force(&tenure, &url, "poll"), left);
    assert_eq!(group(&url, "poll").1.unknown, ["of a newer version"]);
    let text = tenure.run(&["ls", "poll"]).ok();
    let shown = "\nIN_FORCE  ON      HOW\npin       poll/b  zone:eu\ndrain     host-1  anyway\n";
    assert!(text.contains(shown), "{text}");

    // A damaged document can still be listed, and is not overwritten.
    with_store(&url, async |store| {
        let (name, document) = (GroupName::new("other").unwrap(), "nonsense");
        let document = Document::new(document).unwrap();
        store.replace_group_document(&name, Version::ZERO, &document).await.unwrap();
    });
    assert_eq!(in_force(&tenure, &url, "other"), Value::Null);
    let ran = tenure.run(&["ls", "other"]);
    assert!(ran.stderr.contains("the document of group other cannot be read"), "{ran:?}");
    ran.ok();
    tenure.run(&["pause", "other"]).refused("ST014");
}

/// Concurrent commands read, change and write the document; no change may be lost.
#[test]
fn operators_at_the_same_time_do_not_undo_each_other() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    let words = [
        &["pause", "poll/a"][..],
        &["pause", "poll/b"],
        &["pin", "poll/c", "--zone", "eu"],
        &["pin", "poll/d", "--zone", "eu"],
        &["pause", "poll"],
    ];
    let piped = std::process::Stdio::piped;
    let start = |words: &&[&str]| tenure.command(words).stdout(piped()).spawn().unwrap();
    let running: Vec<_> = words.iter().map(start).collect();
    for one in running {
        Ran::of(one.wait_with_output().unwrap()).ok();
    }
    let (_, group) = group(&url, "poll");
    assert_eq!((group.paused.len(), group.pins.len(), group.all_paused), (2, 2, true));
    let zone = tenure_core::roster::Pin::Zone(Label::new("eu").unwrap());
    assert!(group.pins.values().all(|pin| *pin == zone));
}

#[test]
fn an_instance_is_evicted_at_its_ttl_or_now() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    let member = |n: usize| {
        let seen = tenure.run(&["ls", "poll", "--json"]).json();
        seen["groups"][0]["members"].as_array().unwrap().get(n).cloned()
    };
    for words in [&["evict", "poll", "host-1"][..], &["evict", "poll", "host-1", "--now"]] {
        let ran = tenure.run(&[words, &["--dry-run"]].concat());
        assert_eq!(ran.stderr, "a dry run: nothing was changed\n");
        assert!(ran.ok().starts_with("host-1 of poll would be evicted\n2 duties would be free "));
        let json = tenure.run(&[words, &["--dry-run", "--json"]].concat()).json();
        assert_eq!((&json["dry_run"], &json["changed"]), (&true.into(), &true.into()));
        assert_eq!(member(0).unwrap()["evicted"], false);
    }
    let text = tenure.run(&["evict", "poll", "host-1"]).ok();
    let said = "host-1 of poll is evicted: it can neither renew nor join again\n\
                2 duties will be free within ";
    assert!(text.starts_with(said) && text.ends_with(" ms: poll/a, poll/b\n"), "{text}");
    assert_eq!(member(0).unwrap()["evicted"], true);
    let text = tenure.run(&["evict", "poll", "host-1"]).ok();
    assert!(text.starts_with("host-1 of poll was already evicted\n2 duties will be free within "));
    // Nothing can be pinned to an evicted instance.
    let ran = tenure.run(&["pin", "poll/c", "host-1"]);
    ran.refused("DT012");
    assert!(ran.stderr.contains("host-1 is evicted"), "{ran:?}");

    let json = tenure.run(&["evict", "poll", "host-1", "--now", "--json"]).json();
    let duty = |id: &str| json!({ "duty": format!("poll/{id}"), "free_in_ms": 0 });
    let expected = json!({
        "dry_run": false, "group": "poll", "instance": "host-1", "now": true, "changed": true,
        "duties": [duty("a"), duty("b")],
    });
    assert_eq!(json, expected);
    assert_eq!(member(0).unwrap()["instance"], "host-2");
    let ran = tenure.run(&["evict", "poll", "host-2", "--now"]);
    assert!(ran.stderr.contains("no other member takes duties"), "{ran:?}");
    assert!(ran.ok().ends_with("1 duty is free now: poll/c\n"));
    assert!(member(0).is_none());
}

/// An instance whose TTL has expired may join again under its id: its directives stay in force, and
/// it can still be evicted.
#[test]
fn who_is_away_for_a_moment_is_not_forgotten() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    with_store(&url, async |store| {
        join_for(&*store, "poll", "sleeper", NOTE, Duration::from_millis(200)).await;
    });
    let lives = || {
        let seen = tenure.run(&["ls", "poll", "--json"]).json();
        let members = seen["groups"][0]["members"].as_array().unwrap().clone();
        members.iter().any(|member| member["instance"] == "sleeper")
    };
    while lives() {}
    write(&url, "poll", |group| {
        group.drained.insert(instance("sleeper"), DrainMode::HandOver);
    });
    tenure.run(&["pause", "poll/a"]).ok();
    assert!(group(&url, "poll").1.drained.contains_key(&instance("sleeper")));

    tenure.run(&["evict", "poll", "stranger"]).refused("DT010");
    for _ in 0..2 {
        let text = tenure.run(&["evict", "poll", "sleeper"]).ok();
        assert!(text.starts_with("sleeper of poll is not a member, and cannot join again"));
    }
    with_store(&url, async |store| {
        let open = tenure_core::store::OpenSession {
            group: GroupName::new("poll").unwrap(),
            instance: instance("sleeper"),
            nonce: tenure_duty::process::fresh_nonce(),
            ttl: tenure_core::Ttl::new(Duration::from_secs(9)).unwrap(),
            note: tenure_core::Note::new("").unwrap(),
        };
        let opened = store.open_session(&open).await.unwrap();
        assert_eq!(opened, tenure_core::store::Opened::Evicted);
    });
    // After the eviction it can never return, so its directives are dropped.
    tenure.run(&["resume", "poll/a"]).ok();
    assert!(group(&url, "poll").1.drained.is_empty());
}

/// Many concurrent operator commands all succeed.
#[test]
fn operators_do_not_get_in_each_others_way() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    write(&url, "poll", |group| {
        let ids = (0..16).map(|n| DutyId::new(format!("t{n}")).unwrap());
        group.paused.extend(ids);
    });
    std::thread::scope(|scope| {
        for n in 0..16 {
            let (tenure, duty) = (&tenure, format!("poll/t{n}"));
            scope.spawn(move || tenure.run(&["resume", &duty]).ok());
        }
    });
    assert!(group(&url, "poll").1.paused.is_empty());
}

/// A URL in the wrong place is never repeated.
#[test]
fn a_url_in_the_wrong_place_is_not_shown() {
    let tenure = Tenure::new();
    prepare(&tenure.sqlite("tenure.db"));
    let url = "postgres://u:sekret@h/x";
    for words in [
        &["apply", url][..],
        &["plan", "poll", "--out", url],
        &["pin", "poll/a", "--zone", url],
        &["pin", "poll/a", "--name", url],
        &["man", "--dir", url],
        &["run", "--duty", "demo/one", "--zone", url, "--", "true"],
    ] {
        let ran = tenure.run(words);
        assert_eq!(ran.code, Some(2), "{words:?}: {ran:?}");
        assert!(!format!("{ran:?}").contains("sekret"), "{words:?}: {ran:?}");
    }
}
