//! `tenure explain --at`: the state of a group in the past.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_core::engine::Layout;
use tenure_core::store::{AuditRange, Evict};
use tenure_core::{Document, DutyId, Ttl};
use tenure_duty::process;
use testkit::wait_until;

use crate::operate;
use crate::running::LIMIT;
use crate::tenure::{Tenure, claim, join, with_store};
use crate::why::{NOTE, edit, group, instance, of, prepare, shown, why};

/// Returns the time of the newest audit entry for `--at`; waits until the clock has advanced.
fn moment(url: &str) -> String {
    let newest = with_store(url, async |store| {
        let entries = store.audit(&group(), AuditRange::first(1_000)).await.unwrap();
        entries.iter().map(|entry| entry.unix_ms).max().unwrap()
    });
    wait_until("the clock goes on", LIMIT, || process::unix_ms() > newest + 2).unwrap();
    shown(newest)
}

#[test]
fn the_past_is_replayed_from_the_trail() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    with_store(&url, async |store| {
        let ttl = Ttl::new(Duration::from_secs(600)).unwrap();
        edit(&*store, |group| group.settings = Some((ttl, Layout::Shards(2)))).await;
        let a = join(&*store, "g", "a", NOTE).await;
        claim(&*store, &a, "0").await;
        claim(&*store, &a, "1").await;
    });
    let alone = moment(&url);
    with_store(&url, async |store| {
        let b = join(&*store, "g", "b", NOTE).await;
        join(&*store, "g", "c", NOTE).await;
        store.evict(&group(), &instance("a"), Evict::Now, &why()).await.unwrap();
        claim(&*store, &b, "0").await;
    });
    let later = moment(&url);
    // A change without a history entry.
    with_store(&url, async |store| edit(&*store, |group| group.all_paused = true).await);

    let at = |time: &str| tenure.run(&["explain", "g/0", "--at", time, "--json"]);
    let then = at(&alone).json();
    assert_eq!((&then["holder"], &then["epoch"]), (&json!("a"), &json!(1)));
    assert_eq!((&then["should_be"], &then["members"].as_array().unwrap().len()), (&json!("a"), &1));
    assert_eq!(then["transitions"].as_array().unwrap().len(), 1);
    assert_eq!(of(&then, "a")["why"], "keeps");
    let notes = then["notes"].to_string();
    assert!(notes.contains("the directives of that time are not known"), "{notes}");
    assert_eq!(then["in_force_known"], false);

    let then = at(&later).json();
    assert_eq!((&then["holder"], &then["epoch"]), (&json!("b"), &json!(2)));
    let members = then["members"].as_array().unwrap();
    let names: Vec<&Value> = members.iter().map(|member| &member["instance"]).collect();
    assert_eq!(names, ["b", "c"], "a was evicted");
    // A later pause has no effect on the past.
    assert_eq!((&then["paused"], &then["should_be"]), (&json!(false), &json!("b")));
    assert_eq!(tenure.run(&["explain", "g/0", "--json"]).json()["paused"], true);

    for (outside, why) in [
        ("2001-01-01T00:00:00Z", "is before the first entry, at 20"),
        ("1960-01-01T00:00:00Z", "1960-01-01T00:00:00.000Z is before the first entry, at 20"),
        ("-000500-01-01T00:00:00Z", "is before the first entry, at 20"),
        ("876000h", "is before the first entry, at 20"),
        ("2999-01-01T00:00:00Z", "is in the future: now is 20"),
    ] {
        let ran = tenure.run(&["explain", "g/0", &format!("--at={outside}")]);
        ran.refused("DT015");
        assert!(ran.stderr.contains(why), "{ran:?}");
    }
}

/// Later changes by operators are undone, including those of an applied plan.
#[test]
fn what_operators_had_put_in_force_is_known_of_the_past() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    // Returns a time before the next change.
    let tick = || {
        let now = process::unix_ms();
        wait_until("the clock goes on", LIMIT, || process::unix_ms() > now + 2).unwrap();
        shown(now + 1)
    };
    let before = tick();
    tenure.run(&["pin", "g/3", "a"]).ok();
    let pinned = tick();
    tenure.run(&["pin", "g/3", "b", "--replace"]).ok();
    tenure.run(&["pause", "g/1"]).ok();
    tenure.run(&["plan", "g", "--weight", "b=3", "--leave", "a", "--out", "plan"]).ok();
    tenure.run(&["apply", "plan"]).ok();
    let later = tick();
    tenure.run(&["resume", "g/1"]).ok();
    tenure.run(&["drain", "g", "a", "--undo"]).ok();

    let at = |time: &str| tenure.run(&["explain", "g/3", "--at", time, "--json"]).json();
    let then = at(&pinned);
    assert_eq!((&then["pin"], &then["should_be"]), (&json!("instance:a"), &json!("a")));
    assert_eq!(
        (&then["in_force"], &then["in_force_known"]),
        (&json!(["pinned to instance:a"]), &json!(true))
    );
    assert_eq!(of(&then, "b")["weight"], 1);
    assert!(!then["notes"].to_string().contains("operators"), "{}", then["notes"]);
    let then = at(&later);
    assert_eq!((&then["pin"], &then["in_force_known"]), (&json!("instance:b"), &json!(true)));
    assert_eq!(
        (&of(&then, "b")["weight"], &of(&then, "a")["state"]),
        (&json!(3), &json!(["drained"]))
    );
    let paused = tenure.run(&["explain", "g/1", "--at", &later, "--json"]).json();
    assert_eq!((&paused["paused"], &paused["unplanned"]), (&json!(true), &json!("it is paused")));

    let then = at(&before);
    assert_eq!((&then["pin"], &then["in_force_known"]), (&Value::Null, &json!(false)));
    let notes = then["notes"].to_string();
    assert!(notes.contains("directives from before 20"), "{notes}");
    assert!(notes.contains("this assumes that there were none"), "{notes}");
    let ran = tenure.run(&["explain", "g/3", "--at", &before]);
    assert!(ran.stderr.contains("\nnote: directives from before 20"), "{ran:?}");
    let ran = tenure.run(&["explain", "g/3", "--at", &later]).ok();
    assert!(ran.contains("\nin force   a is drained (hand-over)\n"), "{ran}");

    // A change without a history entry makes earlier directives uncertain.
    with_store(&url, async |store| edit(&*store, |group| group.all_paused = true).await);
    let then = at(&later);
    assert_eq!((&then["pin"], &then["in_force_known"]), (&json!("instance:b"), &json!(false)));
    assert!(then["notes"].to_string().contains("changed without a record"), "{}", then["notes"]);
}

/// A document of maximum size can be changed, without a history. A dry run has the same result as
/// the command.
#[test]
fn a_full_document_can_still_be_changed() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    operate::prepare(&url);
    let small = "tenure-group 1\n".len();
    operate::write(&url, "poll", |group| {
        // Leave room for one more line: `pause a` is 8 bytes.
        let lines = Document::MAX_DOCUMENT_BYTES - small - 8;
        let rest = lines % 200 + 200;
        let lengths = std::iter::repeat_n(200, lines / 200 - 1).chain([rest / 2, rest - rest / 2]);
        let id = |(n, length): (usize, usize)| format!("{n:0>width$}", width = length - 7);
        group.paused = lengths.enumerate().map(|of| DutyId::new(id(of)).unwrap()).collect();
    });
    let full = operate::group(&url, "poll").1;
    for _ in 0..2 {
        tenure.run(&["pause", "poll/a", "--dry-run"]).ok();
        tenure.run(&["pause", "poll/a"]).ok();
        for words in [&["pause", "poll/b", "--dry-run"][..], &["pause", "poll/b"]] {
            tenure.run(words).refused("ST011");
        }
        tenure.run(&["resume", "poll/a", "--dry-run"]).ok();
        tenure.run(&["resume", "poll/a"]).ok();
    }
    assert_eq!(operate::group(&url, "poll").1, full);
    // The same holds for a plan.
    tenure.run(&["plan", "poll", "--weight", "host-1=2", "--out", "plan"]).ok();
    for words in [&["apply", "plan", "--dry-run"][..], &["apply", "plan"]] {
        tenure.run(words).refused("ST011");
    }
}
