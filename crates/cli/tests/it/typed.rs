//! Names copied from output, and mistaken names.

use crate::tenure::{Tenure, claim, join, with_store};

/// All names in the output are valid arguments.
#[test]
fn what_is_printed_is_taken_as_it_is() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    let note = "tenure=1\nweight=1\nroom=2\nzone=eu%20w:1%25\nname=%C3%BC=1\nview=0\n";
    with_store(&url, async |store| {
        for who in ["host 1=/é", "host 2"] {
            let session = join(&*store, "a:b/c d", who, note).await;
            if who == "host 2" {
                claim(&*store, &session, "x=y/%41 🦀").await;
            }
        }
    });
    let top = tenure.run(&["top", "--once", "--json"]).json();
    let shown = &top["groups"][0];
    let group = shown["group"].as_str().unwrap();
    let who = shown["members"][0]["instance"].as_str().unwrap();
    let zone = shown["members"][0]["zone"].as_str().unwrap();
    assert_eq!(zone, "eu%20w:1%25");
    let text = tenure.run(&["top", "--once"]).ok();
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!([group, who, zone].iter().all(|name| words.contains(name)), "{text}");
    // The duty in the list of recent moves.
    let duty = *words.iter().find(|word| word.contains("%2F%2541")).unwrap();
    let explained = tenure.run(&["explain", duty, "--json"]).json();
    assert_eq!(
        (&explained["duty"], &explained["members"][0]["zone"]),
        (&duty.into(), &zone.into())
    );

    let planned = tenure.run(&["plan", group, "--leave", "host%202", "--json"]).json();
    assert_eq!(
        (&planned["moves"][0]["duty"], &planned["moves"][0]["to"]),
        (&duty.into(), &who.into())
    );
    let pin = format!("{duty}={who}");
    let planned = tenure.run(&["plan", group, "--pin", &pin, "--json"]).json();
    let pin = &planned["changes"]["pin"];
    assert_eq!(pin.as_object().unwrap().values().collect::<Vec<_>>(), [who]);
    for place in [["--zone", zone], ["--name", "%C3%BC%3D1"]] {
        tenure.run(&[&["pin", duty], &place[..]].concat()).ok();
        let pins = tenure.run(&["pin", group, "--json"]).json()["pins"].clone();
        let to = pins[0]["to"].as_str().unwrap();
        // A pin is accepted as it is listed.
        let text = tenure.run(&["pin", duty, to]).ok();
        assert_eq!(text, format!("{duty} was already pinned to {to}\n"));
        tenure.run(&["pin", duty, "--remove"]).ok();
    }
    tenure.run(&["pin", duty, who]).ok();
    tenure.run(&["pause", duty]).ok();
    tenure.run(&["drain", group, who, "--dry-run"]).ok();
    tenure.run(&["evict", group, who, "--dry-run"]).ok();

    for words in [["--pin", "x=y=z"], ["--pin", "other/x=y"], ["--weight", "a=b=1"]] {
        let ran = tenure.run(&[&["plan", group], &words[..]].concat());
        assert_eq!(ran.code, Some(2), "{ran:?}");
    }
}

/// A duty in place of a group is an error, and the other way round.
#[test]
fn a_group_is_told_from_a_duty() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    with_store(&url, async |store| join(&*store, "poll", "host-1", "").await);
    for words in [
        &["drain", "poll/a", "host-1"][..],
        &["evict", "poll/a", "host-1"],
        &["cordon", "poll/a", "host-1"],
        &["weight", "poll/a", "host-1", "2"],
        &["plan", "poll/a"],
        &["top", "poll/a", "--once"],
        &["ls", "poll/a"],
    ] {
        let ran = tenure.run(words);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains("\"poll/a\" is a duty: give its group"), "{ran:?}");
    }
    for words in [["explain", "poll"], ["explain", ""]] {
        let ran = tenure.run(&words);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("give a duty as GROUP/ID"), "{ran:?}");
    }
    let ran = tenure.run(&["drain", "poll", ""]);
    ran.refused("ST011");
    assert!(ran.stderr.contains("an instance id is empty"), "{ran:?}");
}
