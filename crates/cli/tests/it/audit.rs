//! `tenure audit`, on every store with a URL.

use rustix::process::Signal;
use serde_json::Value;
use tenure_core::store::Evict;
use tenure_core::{GroupName, InstanceId, Reason};
use testkit::wait_until;

use crate::api::stores;
use crate::checkpoint::write;
use crate::running::{LIMIT, STAY};
use crate::tenure::{Tenure, claim, join, with_store};

/// Words of the events, oldest first.
fn words(audit: &Value) -> Vec<&str> {
    let events = audit["events"].as_array().unwrap().iter();
    events.map(|event| event["event"].as_str().unwrap()).collect()
}

/// Content of checkpoints, which the command never prints.
const SECRET: &str = "s3cret";

/// Creates these events of `demo/one`: two commits and a release, a holder that was killed and its
/// successor, a holder that was evicted.
fn prepare(tenure: &Tenure, url: &str) {
    let put = format!("echo {SECRET} | \"$TENURE\" checkpoint put -");
    let run = |script: &str| {
        let words =
            ["run", "--store", url, "--duty", "demo/one", "--ttl", "3s", "--", "sh", "-c", script];
        let mut command = tenure.command(&words);
        command.env("TENURE", env!("CARGO_BIN_EXE_tenure"));
        command
    };
    assert!(run(&format!("{put}; {put}")).output().unwrap().status.success());
    let script = format!("{put}; touch held; {STAY}");
    let mut killed = tenure.start_this("killed", run(&script));
    wait_until("it holds", LIMIT, || tenure.path("held").exists()).unwrap();
    std::fs::remove_file(tenure.path("held")).unwrap();
    killed.signal(Signal::KILL);
    killed.wait();
    assert!(run("true").output().unwrap().status.success());
    with_store(url, async |store| {
        let session = join(&*store, "demo", "gone", "").await;
        let hold = claim(&*store, &session, "one").await;
        write(&*store, &session, &hold, &[SECRET]).await;
        claim(&*store, &session, "two").await;
        let (group, gone) = (GroupName::new("demo").unwrap(), InstanceId::new("gone").unwrap());
        let why = Reason::new("gray failure").unwrap();
        store.evict(&group, &gone, Evict::Now, &why).await.unwrap();
    });
}

const EVENTS: [&str; 12] = [
    "granted",
    "committed",
    "committed",
    "released",
    "granted",
    "committed",
    "expired",
    "granted",
    "released",
    "granted",
    "committed",
    "evicted",
];

#[test]
fn the_life_of_a_duty_is_one_list() {
    let tenure = Tenure::new();
    for url in stores(&tenure) {
        let audit = |words: &[&str]| {
            let ran = tenure.run(&[&["audit", "--store", &url], words].concat());
            ran.hides(SECRET);
            ran
        };
        prepare(&tenure, &url);
        let whole = audit(&["demo/one", "--json"]).json();
        let expected = EVENTS;
        assert_eq!(words(&whole), expected, "{url}: {whole:#}");
        let events = whole["events"].as_array().unwrap();
        assert!(events.iter().all(|event| event["duty"] == "demo/one"));
        assert!(events.is_sorted_by_key(|event| event["unix_ms"].as_u64().unwrap()), "{url}");
        assert!(events.is_sorted_by_key(|event| event["epoch"].as_u64().unwrap()), "{url}");
        // Every commit has its instance, its time, its version and its size.
        let commits: Vec<&Value> =
            events.iter().filter(|event| event["event"] == "committed").collect();
        for (n, commit) in commits.iter().enumerate() {
            assert_eq!(commit["version"], n as u64 + 1, "{url}");
            assert!(commit["at"].as_str().unwrap().starts_with("20"), "{url}");
            let newline = u64::from(n < 3);
            assert_eq!(commit["bytes"], SECRET.len() as u64 + newline, "{url}");
        }
        assert_eq!(commits[3]["instance"], "gone", "{url}");
        assert_eq!(commits[0]["instance"], events[0]["instance"], "{url}");
        assert_eq!(events[11]["reason"], "gray failure", "{url}");

        // The period and the limit cut the list.
        let at = |n: usize| events[n]["at"].as_str().unwrap();
        let since = audit(&["demo/one", "--since", at(6), "--json"]).json();
        assert_eq!(words(&since)[..2], ["expired", "granted"], "{url}: {since:#}");
        assert_eq!(since["trail_begins_unix_ms"], whole["trail_begins_unix_ms"]);
        let until = audit(&["demo/one", "--until", at(5), "--json"]).json();
        assert_eq!(words(&until), EVENTS[..6], "{url}");
        let newest = audit(&["demo/one", "--limit", "3", "--json"]).json();
        assert_eq!((words(&newest), &newest["omitted"]), (EVENTS[9..].to_vec(), &9.into()));

        // The group has the sessions and the other duty, too.
        let group = audit(&["demo", "--json"]).json();
        assert_eq!(words(&group)[..2], ["joined", "granted"], "{url}: {group:#}");
        let text = audit(&["demo", "--since", "1h"]);
        assert!(text.stderr.contains("note: the audit trail of demo begins at 20"), "{text:?}");
        let text = text.ok();
        assert_eq!(text.lines().count(), words(&group).len() + 1);
        assert!(text.contains("  version 2, 7 bytes\n") && text.contains("demo/two"), "{text}");
    }
}

#[test]
fn a_period_that_is_not_covered_is_named() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    with_store(&url, async |store| {
        let session = join(&*store, "g", "a", "").await;
        let hold = claim(&*store, &session, "d").await;
        write(&*store, &session, &hold, &["1", "2", "3", "4"]).await;
    });
    tenure.run(&["store", "retention", "--history", "2"]).ok();
    with_store(&url, async |store| {
        let session = join(&*store, "g", "b", "").await;
        let hold = claim(&*store, &session, "e").await;
        write(&*store, &session, &hold, &["1", "2", "3", "4"]).await;
    });
    let audit = |words: &[&str]| tenure.run(&[&["audit"], words].concat());
    let kept = audit(&["g/e", "--json"]).json();
    assert_eq!(words(&kept), ["granted", "committed", "committed"]);
    assert_eq!(kept["events"][1]["version"], 3);
    let notes = kept["notes"].to_string();
    assert!(notes.contains("the oldest commits of 1 duty are not kept any more"), "{notes}");

    let ran = audit(&["g", "--since", "2001-01-01T00:00:00Z"]);
    assert!(ran.stderr.contains("earlier entries, if there were any, are not kept"), "{ran:?}");
    ran.ok();
    let old = ["--since", "2001-01-01T00:00:00Z", "--until", "2001-01-02T00:00:00Z"];
    audit(&[&["g"], &old[..]].concat()).refused("DT015");
    audit(&["typo"]).refused("DT010");
    audit(&["g/typo"]).refused("DT010");
    for bad in [
        &["g", "--since", "yesterday"][..],
        &["g", "--limit", "0"],
        &["g", "--limit", "100001"],
        &["g", "--since", "2001-01-02T00:00:00Z", "--until", "2001-01-01T00:00:00Z"],
    ] {
        let ran = audit(bad);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    }
    // A duty that was forgotten still has its entries.
    with_store(&url, async |store| {
        let session = join(&*store, "g", "c", "").await;
        let hold = claim(&*store, &session, "f").await;
        crate::tenure::release(&*store, &session, hold).await;
    });
    tenure.run(&["forget", "g/f"]).ok();
    let forgotten = audit(&["g/f", "--json"]).json();
    assert_eq!(words(&forgotten), ["granted", "released", "forgotten"]);
}
