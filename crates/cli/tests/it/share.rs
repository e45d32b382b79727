//! `tenure cordon` and `tenure weight`.

use serde_json::json;
use tenure_core::Version;

use crate::operate::{group, in_force, instance, prepare};
use crate::tenure::{Tenure, join, with_store};

#[test]
fn an_instance_is_cordoned_and_gets_duties_again() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    let text = tenure.run(&["cordon", "poll", "host-1", "--dry-run"]).ok();
    assert!(text.starts_with("host-1 of poll would be cordoned: it would keep "), "{text}");
    assert_eq!(group(&url, "poll").0, Version::ZERO);
    let ran = tenure.run(&["cordon", "poll", "host-1"]);
    assert_eq!(ran.stderr, "");
    assert_eq!(ran.ok(), "host-1 of poll is cordoned: it keeps its duties and gets no new ones\n");
    let line = json!([{ "what": "cordon", "on": "host-1", "how": null }]);
    assert_eq!(in_force(&tenure, &url, "poll"), line);
    let text = tenure.run(&["cordon", "poll", "host-1"]).ok();
    assert_eq!(text, "host-1 of poll was already cordoned\n");
    // Members respect the cordon.
    let free = tenure.run(&["explain", "poll/d", "--json"]).json();
    assert_eq!(
        (&free["should_be"], &free["members"][0]["takes"]),
        (&json!("host-2"), &json!(false))
    );
    let ran = tenure.run(&["cordon", "poll", "host-2"]);
    assert!(ran.stderr.contains("no other member takes duties"), "{ran:?}");
    ran.ok();
    let json = tenure.run(&["cordon", "poll", "host-2", "--json"]).json();
    assert_eq!((&json["changed"], &json["nobody_else"]), (&json!(false), &json!(true)));
    let ran = tenure.run(&["weight", "poll", "host-1", "2", "--dry-run"]);
    assert!(ran.stderr.contains("host-1 is cordoned: it gets no duties"), "{ran:?}");

    let json = tenure.run(&["cordon", "poll", "host-2", "--undo", "--json"]).json();
    let expected = json!({
        "dry_run": false, "group": "poll", "changed": true, "pruned": [], "instance": "host-2",
        "cordoned": false, "nobody_else": false,
    });
    assert_eq!(json, expected);
    let text = tenure.run(&["cordon", "poll", "host-1", "--undo"]).ok();
    assert_eq!(text, "host-1 of poll is no longer cordoned\n");
    let text = tenure.run(&["cordon", "poll", "host-1", "--undo"]).ok();
    assert_eq!(text, "host-1 of poll is not cordoned\n");
    assert_eq!(in_force(&tenure, &url, "poll"), json!([]));
}

#[test]
fn an_instance_is_given_a_weight_and_has_its_own_again() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    let text = tenure.run(&["weight", "poll", "host-1", "3", "--dry-run"]).ok();
    assert_eq!(text, "host-1 of poll would have weight 3; before it had its own\n");
    assert_eq!(group(&url, "poll").0, Version::ZERO);
    let text = tenure.run(&["weight", "poll", "host-1", "3"]).ok();
    assert_eq!(text, "host-1 of poll has weight 3; before it had its own\n");
    assert_eq!(group(&url, "poll").1.weights, [(instance("host-1"), 3)].into());
    let text = tenure.run(&["weight", "poll", "host-1", "3"]).ok();
    assert_eq!(text, "host-1 of poll already had weight 3\n");
    let json = tenure.run(&["weight", "poll", "host-1", "0", "--json"]).json();
    let expected = json!({
        "dry_run": false, "group": "poll", "changed": true, "pruned": [], "instance": "host-1",
        "weight": 0, "before": 3,
    });
    assert_eq!(json, expected);
    // No other member would take its duties.
    tenure.run(&["weight", "poll", "host-2", "0"]).refused("DT007");
    let text = tenure.run(&["weight", "poll", "host-1", "--remove"]).ok();
    assert_eq!(text, "host-1 of poll has its own weight again; before it had 0\n");
    let text = tenure.run(&["weight", "poll", "host-1", "--remove"]).ok();
    assert_eq!(text, "host-1 of poll has no weight set\n");
    assert_eq!(group(&url, "poll").1.weights, [].into());
}

/// A change is refused only if it leaves no member that takes duties.
#[test]
fn the_last_one_that_takes_duties_keeps_its_weight() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    with_store(&url, async |store| {
        join(&*store, "poll", "host-3", "tenure=1\nweight=0\nroom=2\n").await;
    });
    tenure.run(&["weight", "poll", "host-3", "1"]).ok();
    tenure.run(&["weight", "poll", "host-1", "0"]).ok();
    tenure.run(&["weight", "poll", "host-2", "0"]).ok();
    // Its own weight is 0.
    let ran = tenure.run(&["weight", "poll", "host-3", "--remove"]);
    ran.refused("DT007");
    assert!(ran.stderr.contains("no member of poll would take the duties of "), "{ran:?}");
    tenure.run(&["weight", "poll", "host-3", "0"]).refused("DT007");
    // No member takes duties any more, so nothing is lost.
    tenure.run(&["cordon", "poll", "host-3"]).ok();
    tenure.run(&["weight", "poll", "host-3", "0"]).ok();
    tenure.run(&["weight", "poll", "host-3", "--remove"]).ok();
}

#[test]
fn what_makes_no_sense_is_refused() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    with_store(&url, async |store| join(&*store, "poll", "host-3", "no engine").await);
    let before = group(&url, "poll");
    for words in [
        &["cordon", "typo", "host-1"][..],
        &["cordon", "poll", "typo"],
        &["cordon", "poll", "typo", "--undo"],
        &["weight", "typo", "host-1", "1"],
        &["weight", "poll", "typo", "1"],
        &["weight", "poll", "typo", "--remove"],
    ] {
        tenure.run(words).refused("DT010");
    }
    tenure.run(&["cordon", "poll", "host-3"]).refused("DT012");
    tenure.run(&["weight", "poll", "host-3", "2"]).refused("DT012");
    tenure.run(&["evict", "poll", "host-2"]).ok();
    for words in [&["cordon", "poll", "host-2"][..], &["weight", "poll", "host-2", "2"]] {
        let ran = tenure.run(words);
        ran.refused("DT012");
        assert!(ran.stderr.contains("host-2 is evicted"), "{ran:?}");
    }
    for weight in ["-1", "1.5", "many", "4294967296"] {
        let ran = tenure.run(&["weight", "poll", "host-1", weight]);
        assert!(ran.stderr.contains("a weight is a whole number of at most 4294967295"), "{ran:?}");
        assert_eq!(ran.code, Some(2));
    }
    for words in [&["weight", "poll", "host-1"][..], &["weight", "poll", "host-1", "1", "--remove"]]
    {
        assert_eq!(tenure.run(words).code, Some(2), "{words:?}");
    }
    assert_eq!(group(&url, "poll"), before);
}
