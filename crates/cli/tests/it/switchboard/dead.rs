//! `tenure dead`, beside a running server and without one.

use serde_json::{Value, json};

use super::{LETTERS, Place, Server, envelope, on_both_stores};
use crate::tenure::Ran;

on_both_stores! {
    letters_are_listed_and_shown
    a_replayed_event_takes_effect_once
    a_letter_that_is_refused_again_stays
    letters_are_discarded_with_a_reason
    an_unknown_letter_changes_nothing
}

/// Text that a terminal must not get.
const NASTY: &str = "\u{1b}[31mred";

impl Place {
    /// Posts a letter; returns its id.
    fn post(&self, server: &Server, endpoint: &str, error: (&str, &str), body: &Value) -> String {
        let letter = json!({
            "source": {
                "channel": "telegram", "provider": "telegram", "endpoint_identity": endpoint
            },
            "external_event_id": "7", "error_class": error.0, "reason": error.1,
            "attempts": 3, "envelope": body,
        });
        server.post(LETTERS, &letter).is(202)["id"].as_str().unwrap().to_owned()
    }

    fn dead(&self, words: &[&str]) -> Ran {
        let words = [&["--store", &self.url, "dead"], words].concat();
        let mut command = self.tenure.command(&words);
        Ran::of(command.env("TENURE_OPERATOR", "ann").output().unwrap())
    }

    /// Returns ids and outcomes of a replay or a discard.
    fn outcomes(&self, words: &[&str]) -> Vec<(String, String)> {
        let ran = self.dead(&[words, &["--json"]].concat());
        let report: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
        let letters = report["letters"].as_array().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        letters.map(|letter| (text(&letter["id"]), text(&letter["outcome"]))).collect()
    }

    /// Returns the ids that `dead ls` lists.
    fn listed(&self, words: &[&str]) -> Vec<String> {
        let listed = self.dead(&[&["ls", "--json"], words].concat()).json();
        let letters = listed["letters"].as_array().unwrap().iter();
        letters.map(|letter| letter["id"].as_str().unwrap().to_owned()).collect()
    }

    fn letter(&self, id: &str) -> Value {
        self.dead(&["show", id, "--json"]).json()
    }
}

fn letters_are_listed_and_shown(place: &Place) {
    let server = place.serve(&[]);
    let broken = json!({ "text": NASTY });
    let timeout = ("timeout", "no answer in 30 s");
    let one = place.post(&server, "test_bot", timeout, &envelope("1"));
    let two = place.post(&server, "other_bot", ("other", NASTY), &broken);
    place.age("dead_letter", &["posted_at"], 90);
    let more: Vec<String> =
        (0..20).map(|n| place.post(&server, "bulk", timeout, &json!(n))).collect();

    let all = [&[one.clone(), two.clone()][..], &more].concat();
    assert_eq!(place.listed(&[]), all);
    assert_eq!(place.listed(&["--endpoint", "other_bot"]), [&*two]);
    assert_eq!(place.listed(&["--channel", "slack"]), [""; 0]);
    assert_eq!(place.listed(&["--provider", "telegram", "--error", "red"]), [&*two]);
    assert_eq!(place.listed(&["--error", "timeout: no answer", "--limit", "1"]), [&*one]);
    assert_eq!(place.listed(&["--since", "1h"]), more);
    assert_eq!(place.listed(&["--state", "discarded"]), [""; 0]);
    assert_eq!(place.listed(&["--state", "all", "--after", &two, "--limit", "15"]), more[..15]);
    // Pages follow each other to the end.
    let page = place.dead(&["ls", "--limit", "21", "--json"]).json();
    assert_eq!(page["next_after"], more[18]);
    let last = place.dead(&["ls", "--after", &more[18], "--json"]).json();
    assert_eq!(
        (last["letters"][0]["id"].as_str(), &last["next_after"]),
        (Some(&*more[19]), &Value::Null)
    );
    let ran = place.dead(&["ls", "--limit", "2"]);
    assert!(ran.stderr.contains(&format!("continue with --after {two}")), "{ran:?}");
    let text = ran.ok();
    assert!(text.contains("timeout: no answer in 30 s") && !text.contains('\u{1b}'), "{text}");

    // Without a server as well.
    server.stop();
    let shown = place.letter(&one);
    assert_eq!((&shown["attempts"], &shown["state"]), (&3.into(), &"pending".into()));
    assert_eq!(shown["envelope"], envelope("1"));
    let text = place.dead(&["show", &two]).ok();
    assert!(text.contains("error: other: \\u{1b}[31mred\n"), "{text}");
    assert!(text.contains("envelope: {\"text\":\"\\\\u001b[31mred\"}\n"), "{text}");
    assert_eq!(place.dead(&["show", &two, "--raw"]).ok(), broken.to_string());
    assert_eq!(place.dead(&["show", &two, "--raw", "--json"]).code, Some(2));
    assert_eq!(place.dead(&["show", "7"]).code, Some(2));
}

/// One letter was accepted meanwhile, others are new: beside the server and without it.
fn a_replayed_event_takes_effect_once(place: &Place) {
    let server = place.serve(&[]);
    let error = ("timeout", "no answer");
    let ids = ["1", "2", "3"].map(|n| place.post(&server, "test_bot", error, &envelope(n)));
    let accepted = server.ingest(&envelope("1")).is(202);
    let would = place.outcomes(&["replay", "--all", "--dry-run"]);
    assert!(would.iter().all(|(_, outcome)| outcome == "replayed"), "{would:?}");
    assert_eq!((server.inbox().len(), place.listed(&[]).len()), (1, 3), "a dry run");

    let done = place.dead(&["replay", &ids[0], &ids[1], "--json"]).json();
    let outcome = |n: usize| done["letters"][n]["outcome"].as_str().unwrap();
    assert_eq!((outcome(0), outcome(1)), ("duplicate", "replayed"), "{done:#}");
    assert_eq!(done["letters"][0]["request_id"], accepted["request_id"]);
    assert_eq!(server.inbox().len(), 2);
    let again = place.outcomes(&["replay", &ids[0]]);
    assert_eq!(again, [(ids[0].clone(), "unchanged".to_owned())]);

    server.stop();
    let rest = place.outcomes(&["replay", "--all", "--endpoint", "test_bot"]);
    assert_eq!(rest, [(ids[2].clone(), "replayed".to_owned())]);
    assert_eq!(place.listed(&[]), [""; 0]);
    let kept = place.letter(&ids[2]);
    assert_eq!((&kept["state"], &kept["resolved_by"]), (&"replayed".into(), &"ann".into()));
    let server = place.serve(&[]);
    let inbox = server.inbox();
    assert_eq!(inbox.len(), 3, "each event once");
    assert_eq!(inbox[2]["request_id"], kept["request_id"]);
    // Interrupted between the event and its letter: the next replay finds the event.
    place.execute("UPDATE dead_letter SET state = 'pending', resolved_at = NULL");
    let again = place.outcomes(&["replay", "--all"]);
    assert!(again.len() == 3 && again.iter().all(|(_, it)| it == "duplicate"), "{again:?}");
    assert_eq!(server.inbox().len(), 3);
}

fn a_letter_that_is_refused_again_stays(place: &Place) {
    let server = place.serve(&[]);
    let mut voice = envelope("1");
    voice["source"] =
        json!({ "channel": "voice", "provider": "twilio", "endpoint_identity": "test_bot" });
    let first = ("validation_error", "422: something else");
    let id = place.post(&server, "test_bot", first, &voice);
    let good = place.post(&server, "test_bot", first, &envelope("2"));
    let would = place.dead(&["replay", "--all", "--dry-run"]);
    assert_eq!(would.code, Some(1), "{would:?}");
    assert_eq!(place.letter(&id)["attempts"], 3, "a dry run");
    let ran = place.dead(&["replay", "--all"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("refused again and kept with the new reason: 1 letter"), "{ran:?}");
    assert!(ran.stdout.contains("refused") && ran.stdout.contains("source.channel"), "{ran:?}");
    assert_eq!(place.listed(&[]), [&*id]);
    assert_eq!(place.letter(&good)["state"], "replayed");
    let kept = place.letter(&id);
    let reason = kept["reason"].as_str().unwrap();
    assert!(reason.starts_with("Invalid ingest.v1 envelope: source.channel: "), "{reason}");
    assert_eq!((&kept["attempts"], &kept["error_class"]), (&4.into(), &"validation_error".into()));
    assert_eq!(kept["envelope"], voice);

    // The cause is removed.
    place.tenure(&["channel", "add", "voice", "--provider", "twilio"]).ok();
    assert_eq!(place.outcomes(&["replay", &id]), [(id.clone(), "replayed".to_owned())]);
    // Fields that the server keeps are kept here, too.
    let mut more = envelope("3");
    more["extra"] = json!(1);
    let id = place.post(&server, "test_bot", first, &more);
    assert_eq!(place.outcomes(&["replay", &id])[0].1, "refused");
    assert_eq!(place.outcomes(&["replay", &id, "--fields", "kept"])[0].1, "replayed");
    assert_eq!(server.inbox().len(), 3);
}

fn letters_are_discarded_with_a_reason(place: &Place) {
    let server = place.serve(&[]);
    let error = ("other", "spam");
    let ids = ["1", "2", "3"].map(|n| place.post(&server, "test_bot", error, &envelope(n)));
    for bad in [
        &["discard", &ids[0]][..],
        &["discard", "--reason", "x"],
        &["discard", "--all", "--reason", "x"],
        &["discard", "--all", "--error", "", "--reason", "x"],
        &["discard", "--all", "--endpoint", "", "--reason", "x"],
        &["discard", "--all", "--error", "spam", "--reason", " "],
        &["discard", &ids[0], "--all", "--error", "spam", "--reason", "x"],
        &["discard", &ids[0], "--error", "spam", "--reason", "x"],
        &["replay"],
        &["replay", "--all", "--limit", "0"],
    ] {
        let ran = place.dead(bad);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    }
    let all = ["discard", "--all", "--error", "spam", "--reason", "a flood"];
    let would = place.dead(&[&all[..], &["--dry-run"]].concat());
    assert!(would.stderr.contains("a dry run: nothing was changed"), "{would:?}");
    assert_eq!(place.listed(&[]), ids);
    let some = place.dead(&[&all[..], &["--limit", "2"]].concat());
    assert!(some.stderr.contains("more letters match: run the same command again"), "{some:?}");
    assert_eq!(place.listed(&[]), ids[2..]);
    assert_eq!(place.outcomes(&all), [(ids[2].clone(), "discarded".to_owned())]);
    assert_eq!(place.outcomes(&all), []);
    let kept = place.letter(&ids[2]);
    assert_eq!((&kept["state"], &kept["resolved_by"]), (&"discarded".into(), &"ann".into()));
    assert_eq!(kept["resolution"], "a flood");
    assert!(kept["resolved_at"].as_str().unwrap().starts_with("20"), "{kept:#}");
    // It has ended: a replay does not submit it, here or over HTTP.
    assert_eq!(place.outcomes(&["replay", &ids[2]])[0].1, "unchanged");
    server.post(&format!("{LETTERS}/{}/replay", ids[2]), &json!({})).refused(409, "conflict");
    assert_eq!(server.inbox().len(), 0);
}

fn an_unknown_letter_changes_nothing(place: &Place) {
    let server = place.serve(&[]);
    let known = place.post(&server, "test_bot", ("other", "x"), &envelope("1"));
    let unknown = uuid::Uuid::from_u128(7).to_string();
    place.dead(&["show", &unknown]).refused("SW011");
    place.dead(&["replay", &known, &unknown]).refused("SW011");
    place.dead(&["discard", &known, &unknown, "--reason", "x"]).refused("SW011");
    assert_eq!(place.listed(&[]), [known]);
    assert_eq!(server.inbox().len(), 0);
}
