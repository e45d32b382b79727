//! `tenure explain`, `tenure plan`, `tenure apply` and `tenure top`.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tenure_core::engine::{DrainMode, GroupConfig, Layout};
use tenure_core::roster::Pin;
use tenure_core::store::{Evict, Replaced};
use tenure_core::{Document, DutyId, GroupName, InstanceId, Reason, Store, Ttl};
use testkit::{TEST_ETCD, TEST_POSTGRES, TEST_REDIS, service, wait_until};

use crate::running::LIMIT;
use crate::stores;
use crate::tenure::{Ran, Tenure, claim, join, release, with_store};

pub const NOTE: &str = "tenure=1\nweight=1\nroom=100\n";

pub fn group() -> GroupName {
    GroupName::new("g").unwrap()
}

pub fn instance(name: &str) -> InstanceId {
    InstanceId::new(name).unwrap()
}

async fn read(store: &dyn Store) -> GroupConfig {
    GroupConfig::read(&store.group_document(&group()).await.unwrap()).unwrap()
}

/// Changes the group's document.
pub async fn edit(store: &dyn Store, change: impl FnOnce(&mut GroupConfig)) {
    let before = store.group_document(&group()).await.unwrap();
    let mut after = GroupConfig::read(&before).unwrap();
    change(&mut after);
    let document = after.document().unwrap();
    let done = store.replace_group_document(&group(), before.version, &document).await.unwrap();
    assert!(matches!(done, Replaced::Saved(_)), "{done:?}");
}

/// Creates four shards: `a` holds 0, 1 and 2, 3 is free, and `b` is a member.
pub fn prepare(url: &str) {
    with_store(url, async |store| {
        let ttl = Ttl::new(Duration::from_secs(600)).unwrap();
        edit(&*store, |group| group.settings = Some((ttl, Layout::Shards(4)))).await;
        let a = join(&*store, "g", "a", NOTE).await;
        join(&*store, "g", "b", NOTE).await;
        for id in ["0", "1", "2"] {
            claim(&*store, &a, id).await;
        }
    });
}

/// Returns the entry of a member.
pub fn of<'a>(document: &'a Value, instance: &str) -> &'a Value {
    let members = document["members"].as_array().unwrap();
    members.iter().find(|member| member["instance"] == instance).unwrap()
}

fn check_explain(held: &Value, free: &Value) {
    assert_eq!((&held["holder"], &held["paused"]), (&json!("a"), &json!(false)));
    assert!(held["epoch"].is_u64() && held["since_unix_ms"].is_u64());
    assert_eq!(held["transitions"].as_array().unwrap().len(), 1);
    assert_eq!(held["transitions"][0]["event"], "granted");
    assert_eq!((&free["holder"], &free["should_be"]), (&Value::Null, &json!("b")));
    let (a, b) = (of(free, "a"), of(free, "b"));
    assert_eq!((&a["why"], &a["chosen"]), (&json!("has_share"), &json!(false)));
    assert_eq!((&b["why"], &b["chosen"]), (&json!("highest"), &json!(true)));
    assert_eq!((&a["share"], &b["share"]), (&json!(2), &json!(2)));
    assert_eq!((&a["weight"], &a["score"].as_str().unwrap().len()), (&json!(1), &16));
}

#[test]
fn a_duty_is_explained_to_people_and_programs() {
    let tenure = Tenure::new();
    prepare(&tenure.sqlite("tenure.db"));
    let [held, free] = ["g/0", "g/3"].map(|duty| tenure.run(&["explain", duty, "--json"]).json());
    check_explain(&held, &free);

    let text = tenure.run(&["explain", "g/3"]).ok();
    assert!(text.starts_with("duty       g/3\nholder     -\nepoch      -\n"), "{text}");
    assert!(text.contains("should be  with b\n"), "{text}");
    assert!(text.contains("the duties that it keeps fill its share\n"), "{text}");
    assert!(text.contains("has the highest score of the members below their share\n"), "{text}");

    with_store(&tenure.sqlite("tenure.db"), async |store| {
        edit(&*store, |group| {
            let id = |id: &str| DutyId::new(id).unwrap();
            group.pins.insert(id("0"), Pin::Instance(instance("b")));
            group.paused.insert(id("1"));
            group.drained.insert(instance("a"), DrainMode::HandOver);
        })
        .await;
    });
    let pinned = tenure.run(&["explain", "g/0", "--json"]).json();
    assert_eq!((&pinned["pin"], &pinned["should_be"]), (&json!("instance:b"), &json!("b")));
    assert_eq!(
        (&of(&pinned, "b")["why"], &of(&pinned, "b")["pin"]),
        (&json!("pinned"), &json!(true))
    );
    assert_eq!(
        (&of(&pinned, "a")["why"], &of(&pinned, "a")["state"]),
        (&json!("drained"), &json!(["drained"]))
    );
    let paused = tenure.run(&["explain", "g/1", "--json"]).json();
    assert_eq!((&paused["paused"], &paused["should_be"]), (&json!(true), &Value::Null));
    assert_eq!(paused["unplanned"], "it is paused");
}

#[test]
fn what_is_not_there_is_not_explained() {
    let tenure = Tenure::new();
    prepare(&tenure.sqlite("tenure.db"));
    for duty in ["g/4", "g/nope", "other/0"] {
        tenure.run(&["explain", duty]).refused("DT010");
    }
    tenure.run(&["plan", "other"]).refused("DT010");
    tenure.run(&["top", "other", "--once"]).refused("DT010");
    let usage = |words: &[&str]| assert_eq!(tenure.run(words).code, Some(2), "{words:?}");
    usage(&["explain", "g/0", "--at", "yesterday"]);
    usage(&["plan", "g", "--weight", "a=many"]);
    usage(&["plan", "g", "--weight", "a"]);
    usage(&["plan", "g", "--weight", "a=-1"]);
    usage(&["plan", "g", "--pin", "0"]);
    usage(&["top", "--every", "1ms"]);
}

pub fn shown(unix_ms: u64) -> String {
    let time = jiff::Timestamp::from_millisecond(i64::try_from(unix_ms).unwrap()).unwrap();
    time.to_string()
}

pub fn why() -> Reason {
    Reason::new("test").unwrap()
}

fn version(url: &str) -> u64 {
    with_store(url, async |store| store.group_document(&group()).await.unwrap().version.get())
}

fn check_plan(plan: &Value) {
    let counts = |name: &str| (of(plan, name)["before"].as_u64(), of(plan, name)["after"].as_u64());
    assert_eq!((counts("a"), counts("b")), ((Some(3), Some(1)), (Some(0), Some(3))));
    let moves = plan["moves"].as_array().unwrap();
    assert_eq!(moves.len(), 3, "{moves:?}");
    let of_a = moves.iter().filter(|step| step["from"] == "a");
    assert!(of_a.clone().all(|step| step["leaves"] == "surplus" && step["to"] == "b"));
    assert_eq!(of_a.count(), 2);
    assert_eq!((&plan["duties"], &plan["changes"]["weight"]), (&json!(4), &json!({ "b": 3 })));
}

#[test]
fn a_plan_shows_what_would_move_and_moves_nothing() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    let before = version(&url);
    check_plan(&tenure.run(&["plan", "g", "--weight", "b=3", "--json"]).json());
    let text = tenure.run(&["plan", "g", "--weight", "b=3"]).ok();
    assert!(text.starts_with("group g, if this changed:\n  weight b 3\n\n"), "{text}");
    assert!(
        text.contains("4 duties: 2 would move, 1 would be assigned, 0 would have no"),
        "{text}"
    );

    // Without changes, the plan marks duties that move anyway.
    let plan = tenure.run(&["plan", "g", "--json"]).json();
    let moves = plan["moves"].as_array().unwrap();
    assert!(moves.len() == 2 && moves.iter().all(|step| step["anyway"] == true), "{moves:?}");
    let plan = tenure.run(&["plan", "g", "--join", "n", "--weight", "n=2", "--json"]).json();
    assert_eq!(of(&plan, "n")["after"], 2);
    assert!(plan["notes"].to_string().contains("does not start new members"), "{plan}");
    let plan = tenure.run(&["plan", "g", "--leave", "a", "--json"]).json();
    assert_eq!((&of(&plan, "a")["after"], &of(&plan, "b")["after"]), (&json!(0), &json!(4)));

    for (words, code) in [
        (&["--leave", "nobody"][..], "DT010"),
        (&["--weight", "nobody=1"], "DT010"),
        (&["--pin", "0=nobody"], "DT010"),
        (&["--pin", "9=a"], "DT010"),
        (&["--pin", "0=a", "--pin", "0=b"], "DT012"),
        (&["--pin", "0=a", "--leave", "a"], "DT012"),
        (&["--pin", "0=n", "--join", "n"], "DT012"),
        (&["--join", "a"], "DT012"),
        (&["--weight", "a=1", "--weight", "a=2"], "DT012"),
        (&["--weight", "a=1", "--leave", "a"], "DT012"),
        (&["--leave", "a", "--leave", "b"], "DT007"),
        (&["--leave", "a", "--weight", "b=0"], "DT007"),
    ] {
        tenure.run(&[&["plan", "g", "--out", "plan"], words].concat()).refused(code);
    }
    assert!(!tenure.path("plan").exists());
    assert_eq!(version(&url), before);
}

#[test]
fn a_plan_is_applied_once_and_only_to_what_it_was_made_from() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    let plan = |words: &[&str]| tenure.run(&[&["plan", "g", "--out", "plan"], words].concat()).ok();
    plan(&["--leave", "a", "--pin", "3=b", "--weight", "b=2"]);
    let before = version(&url);
    let dry = tenure.run(&["apply", "plan", "--dry-run"]);
    assert!(dry.stderr.ends_with("a dry run: nothing was changed\n"), "{dry:?}");
    assert!(dry.ok().starts_with("group g: these changes would be put in force:\n  leave a\n"));
    assert_eq!(version(&url), before);

    let text = std::fs::read_to_string(tenure.path("plan")).unwrap();
    std::fs::write(tenure.path("edited"), text.replace("\"b\": 2", "\"b\": 9")).unwrap();
    std::fs::write(tenure.path("cut"), &text[..text.len() / 2]).unwrap();
    for bad in ["edited", "cut", "missing"] {
        tenure.run(&["apply", bad]).refused("DT014");
    }
    std::fs::copy(tenure.path("tenure.db"), tenure.path("copy.db")).unwrap();
    tenure.run(&["apply", "plan", "--store", "sqlite:copy.db"]).refused("DT014");
    // Other names of the same file are accepted.
    std::os::unix::fs::symlink("tenure.db", tenure.path("link.db")).unwrap();
    for same in [&*url, "sqlite:./tenure.db", "sqlite:link.db"] {
        tenure.run(&["apply", "plan", "--dry-run", "--store", same]).ok();
    }

    let applied = tenure.run(&["apply", "plan", "--json"]).json();
    assert_eq!((&applied["changed"], &applied["group"]), (&json!(true), &json!("g")));
    let group = with_store(&url, async |store| read(&*store).await);
    assert_eq!(group.drained.get(&instance("a")), Some(&DrainMode::HandOver));
    assert_eq!(group.weights.get(&instance("b")), Some(&2));
    assert_eq!(group.pins[&DutyId::new("3").unwrap()], Pin::Instance(instance("b")));
    assert_eq!(version(&url), before + 1, "one compare-and-set");
    let again = tenure.run(&["apply", "plan"]);
    again.refused("DT013");
    assert!(again.stderr.contains("directives of operators"), "{again:?}");
}

#[test]
fn a_plan_of_a_group_that_has_changed_is_refused() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    let plan = |words: &[&str]| tenure.run(&[&["plan", "g", "--out", "plan"], words].concat()).ok();
    let refused = |what: &str| {
        let ran = tenure.run(&["apply", "plan"]);
        ran.refused("DT013");
        assert!(ran.stderr.contains(what), "{ran:?}");
    };
    plan(&["--leave", "a"]);
    with_store(&url, async |store| join(&*store, "g", "c", NOTE).await);
    refused("changed in g: members");
    plan(&["--leave", "a"]);
    with_store(&url, async |store| {
        let d = join(&*store, "other", "d", NOTE).await;
        let hold = claim(&*store, &d, "x").await;
        release(&*store, &d, hold).await;
    });
    // Changes in another group do not invalidate the plan.
    tenure.run(&["apply", "plan", "--dry-run"]).ok();
    with_store(&url, async |store| {
        store.evict(&group(), &instance("a"), Evict::Now, &why()).await.unwrap();
    });
    refused("holders");
    assert_eq!(version(&url), 1);

    // A plan cannot start new members.
    plan(&["--join", "n", "--weight", "n=3"]);
    let ran = tenure.run(&["apply", "plan"]);
    ran.refused("DT014");
    assert!(ran.stderr.contains("does not start new members"), "{ran:?}");
    // A new member does not count as successor of members that leave.
    plan(&["--join", "n", "--leave", "b", "--leave", "c"]);
    tenure.run(&["apply", "plan"]).refused("DT007");
    assert_eq!(version(&url), 1);
    plan(&["--join", "n", "--weight", "b=3"]);
    assert!(tenure.run(&["apply", "plan"]).stderr.contains("does not start new members"));
    assert_eq!(version(&url), 2);
}

/// Two processes share four targets; one leaves by a plan, and the duties move as planned.
#[test]
fn members_do_what_was_planned() {
    let tenure = Tenure::new();
    let words = ["poll", "--targets", "list:a,b,c,d", "--every", "1h", "--ttl", "3s"];
    let limits = ["--timeout", "200ms", "--grace", "100ms", "--", "true"];
    let words = [&words[..], &limits].concat();
    let (_first, _second) = (tenure.start("1", &words), tenure.start("2", &words));
    let holders = || {
        let ran = tenure.run(&["ls", "poll", "--json"]);
        let Some(0) = ran.code else { return Vec::new() };
        let groups = ran.json();
        let Some(duties) = groups["groups"][0]["duties"].as_array() else { return Vec::new() };
        let holder = |duty: &Value| duty["holder"].as_str().map(str::to_owned);
        duties.iter().filter_map(holder).collect::<Vec<_>>()
    };
    let shared = || {
        let of = holders();
        of.len() == 4 && of.iter().filter(|name| **name == of[0]).count() == 2
    };
    let settled = wait_until("both have two", LIMIT, shared);
    assert!(settled.is_ok(), "{:?} {}", holders(), tenure.text("1.err"));
    let goes = holders().remove(0);
    // Until both members have the same view, plans may still become outdated.
    let applied = wait_until("the plan is applied", LIMIT, || {
        tenure.run(&["plan", "poll", "--leave", &goes, "--out", "plan"]).ok();
        tenure.run(&["apply", "plan"]).code == Some(0)
    });
    applied.unwrap();
    let moved = wait_until("it has nothing left", LIMIT, || {
        let of = holders();
        of.len() == 4 && !of.contains(&goes)
    });
    assert!(moved.is_ok(), "{:?} {}", holders(), tenure.text("1.err"));
    let plan: Value = serde_json::from_str(&tenure.text("plan")).unwrap();
    for step in plan["moves"].as_array().unwrap() {
        let now = tenure.run(&["explain", step["duty"].as_str().unwrap(), "--json"]).json();
        assert_eq!((&now["holder"], &now["should_be"]), (&step["to"], &step["to"]));
        assert!(now["transitions"].as_array().unwrap().len() >= 3, "{now}");
    }
}

fn check_top(frame: &Value) {
    assert_eq!(frame["away"], false);
    let group = &frame["groups"][0];
    assert_eq!(group["error"], Value::Null);
    assert_eq!((&group["group"], &group["layout"]), (&json!("g"), &json!("shards:4")));
    assert_eq!(group["duties"], json!({ "known": 4, "held": 3, "free": 1, "paused": 0 }));
    assert_eq!((&of(group, "a")["holds"], &of(group, "b")["holds"]), (&json!(3), &json!(0)));
    assert!((1..=600_000).contains(&of(group, "a")["remaining_ms"].as_u64().unwrap()));
    let moves = group["last_minute"].as_array().unwrap();
    assert_eq!(moves.iter().filter(|entry| entry["event"] == "granted").count(), 3);
}

#[test]
fn top_shows_a_group_once() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    check_top(&tenure.run(&["top", "--once", "--json"]).json());
    with_store(&url, async |store| {
        let note = format!("{NOTE}zone=eu%20west\n");
        join(&*store, "g", "c", &note).await;
        join(&*store, "g", "d", "\u{1b}[2J").await;
        edit(&*store, |group| {
            group.drained.insert(instance("c"), DrainMode::HandOver);
            group.paused.insert(DutyId::new("3").unwrap());
        })
        .await;
    });
    let text = tenure.run(&["top", "g", "--once"]).ok();
    assert!(
        text.contains("\ngroup g  layout shards:4\n4 duties: 3 held, 0 free, 1 paused\n"),
        "{text}"
    );
    assert!(text.contains("last minute: 3 granted, 0 released, 0 expired\n"), "{text}");
    assert!(text.contains("drained\n") && text.contains("takes-no-part\n"), "{text}");
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    assert!(text.contains("eu%20west"), "{text}");
}

/// One group has a damaged document; the others are still shown.
#[test]
fn top_goes_on_past_a_group_that_is_damaged() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    let broken = GroupName::new("broken").unwrap();
    with_store(&url, async |store| {
        let text = Document::new("\u{1b}[2J is no document").unwrap();
        let before = store.group_document(&broken).await.unwrap().version;
        store.replace_group_document(&broken, before, &text).await.unwrap();
    });
    let mut frame = tenure.run(&["top", "--once", "--json"]).json();
    let first = frame["groups"].as_array_mut().unwrap().remove(0);
    assert_eq!((&first["group"], &first["error"]["code"]), (&json!("broken"), &json!("ST014")));
    assert!(first["duties"].is_null() && first["members"].is_null(), "{first}");
    check_top(&frame);
    let text = tenure.run(&["top", "--once"]).ok();
    assert!(text.contains("\ngroup broken  cannot be read: ST014: "), "{text}");
    assert!(text.contains("\ngroup g  layout shards:4\n"), "{text}");
    // For this group alone, the command fails.
    tenure.run(&["top", "broken", "--once"]).refused("ST014");
}

#[test]
fn top_goes_on_until_it_is_told_or_nobody_reads() {
    let tenure = Tenure::new();
    prepare(&tenure.sqlite("tenure.db"));
    let mut top = tenure.start("top", &["top", "--json", "--every", "100ms"]);
    for line in tenure.lines("top.out", 3) {
        check_top(&serde_json::from_str(&line).unwrap());
    }
    top.signal(Signal::INT);
    assert_eq!(top.wait().code(), Some(0));

    let script = "\"$0\" top --every 50ms | head -n 1; echo ${PIPESTATUS[0]}";
    let mut shell = tenure.command_of("bash", &["-c", script, env!("CARGO_BIN_EXE_tenure")]);
    let ran = Ran::of(shell.output().unwrap()).ok();
    assert!(ran.ends_with("\n0\n"), "{ran}");
}

#[test]
fn top_waits_for_a_store_that_is_away() {
    let tenure = Tenure::new();
    let away = ["top", "--json", "--every", "100ms", "--store", "redis://:s3cret@127.0.0.1:1/0"];
    let mut top = tenure.start("top", &away);
    for line in tenure.lines("top.out", 2) {
        let frame: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&frame["away"], &frame["groups"]), (&json!(true), &Value::Null), "{frame}");
        assert_eq!(frame["error"]["code"], "ST002");
        assert!(!line.contains("s3cret"), "{line}");
    }
    top.signal(Signal::TERM);
    assert_eq!(top.wait().code(), Some(0));
    // With --once, or if the store does not exist, `top` does not wait.
    tenure.run(&["top", "--once", "--store", away[5]]).refused("ST002");
    tenure.run(&["top", "--store", "sqlite:no.db"]).refused("ST015");
}

/// Runs all four commands on every real server.
#[test]
fn every_store_is_explained_planned_applied_and_watched() {
    let name = stores::name();
    let servers = [(TEST_POSTGRES, "schema"), (TEST_REDIS, "prefix"), (TEST_ETCD, "prefix")];
    for (server, own) in servers {
        let Some(server) = service(server) else { continue };
        let (tenure, url) = (Tenure::new(), format!("{server}?{own}={name}"));
        let run = |words: &[&str]| tenure.run(&[words, &["--store", &url]].concat());
        prepare(&url);
        let explain = |duty: &str| run(&["explain", duty, "--json"]).json();
        check_explain(&explain("g/0"), &explain("g/3"));
        let now = explain("g/0")["since_unix_ms"].as_u64().unwrap();
        let then = run(&["explain", "g/0", "--at", &shown(now), "--json"]).json();
        assert_eq!(then["holder"], "a", "{url}");
        run(&["explain", "g/0", "--at", "876000h"]).refused("DT015");
        check_plan(&run(&["plan", "g", "--weight", "b=3", "--out", "plan", "--json"]).json());
        check_top(&run(&["top", "g", "--once", "--json"]).json());
        assert_eq!(run(&["apply", "plan", "--json"]).json()["changed"], true);
        run(&["apply", "plan"]).refused("DT013");
        let group = with_store(&url, async |store| read(&*store).await);
        assert_eq!(group.weights.get(&instance("b")), Some(&3));
    }
}
