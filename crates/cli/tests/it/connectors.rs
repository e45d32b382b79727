//! `tenure connectors` on a store, without a server.

use serde_json::{Value, json};
use tenure_store::{IfAbsent, StoreUrl};
use tenure_switchboard::liveness::Policy;
use tenure_switchboard::storage::{
    self, HeartbeatOutcome, ReceivedHeartbeat, Registry, TimeSource,
};
use tenure_wire::heartbeat::{ConnectorCheckpoint, Counters, Health, Heartbeat, Labels};
use testkit::{TEST_POSTGRES, service};
use uuid::Uuid;

use crate::stores::name;
use crate::tenure::{Ran, Tenure};

const SECOND: i64 = 1_000_000;
/// Markup, control characters, and characters that are separators elsewhere.
const NASTY: &str = "a/b:c@d <i>\u{1b}[31m\u{202e}\\é";
const NASTY_SHOWN: &str = "a/b:c@d <i>\\u{1b}[31m\\u{202e}\\\\é";

/// A store of its own for the command.
struct Place {
    tenure: Tenure,
    store: String,
}

impl Place {
    fn all() -> impl Iterator<Item = Self> {
        let tenure = Tenure::new();
        let sqlite = Self { store: tenure.sqlite("beats.db"), tenure };
        let postgres = service(TEST_POSTGRES).map(|server| Self {
            store: format!("{server}?schema={}", name()),
            tenure: Tenure::new(),
        });
        [Some(sqlite), postgres].into_iter().flatten().inspect(|place| {
            place.run(&["migrate"]).ok();
        })
    }

    fn run(&self, words: &[&str]) -> Ran {
        let mut command = self.tenure.command(words);
        command.env("TENURE_STORE", &self.store).env("TENURE_OPERATOR", "ann");
        Ran::of(command.output().unwrap())
    }

    fn json(&self, words: &[&str]) -> Value {
        self.run(&[&["connectors"], words, &["--json"]].concat()).json()
    }

    fn ls(&self, more: &[&str]) -> Vec<Value> {
        let listed = self.json(&[&["ls"], more].concat());
        listed["connectors"].as_array().unwrap().clone()
    }

    /// Returns the liveness of each connector, ordered by name.
    fn liveness(&self, more: &[&str]) -> Vec<String> {
        let listed = self.ls(more);
        listed.iter().map(|it| it["liveness"].as_str().unwrap().to_owned()).collect()
    }

    /// Runs an operation that only the server does.
    fn with<T>(&self, work: impl AsyncFnOnce(&dyn Registry) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let url = StoreUrl::parse(&self.store).unwrap();
            work(&*storage::open(&url, IfAbsent::Refuse).await.unwrap()).await
        })
    }

    fn beat(&self, heartbeat: Heartbeat, when: TimeSource) {
        let longest_interval = Policy::Usual.longest_interval();
        let beat = ReceivedHeartbeat { heartbeat, token_id: None, longest_interval };
        let beaten = self.with(async |registry| registry.beat(&beat, when).await.unwrap());
        assert!(matches!(beaten, HeartbeatOutcome::Accepted(_)), "{beaten:?}");
    }
}

fn heartbeat(connector_type: &str, endpoint_identity: &str) -> Heartbeat {
    Heartbeat {
        connector_type: connector_type.to_owned(),
        endpoint_identity: endpoint_identity.to_owned(),
        instance_id: Uuid::new_v4(),
        labels: Labels::default(),
        state: Health::Healthy,
        error_message: None,
        uptime_s: 60,
        counters: Counters { messages_ingested: 42, messages_failed: 1, ..Counters::default() },
        checkpoint: None,
        capabilities: None,
        sent_at_micros: now(),
        mended: Vec::new(),
    }
}

fn now() -> i64 {
    i64::try_from(tenure_duty::process::unix_micros()).unwrap()
}

#[test]
fn connectors_are_listed_shown_put_away_and_removed() {
    for place in Place::all() {
        let empty = place.run(&["connectors", "ls"]);
        assert!(empty.stderr.contains("there are no connectors yet"), "{empty:?}");

        let instance = Uuid::new_v4();
        let troubled = Heartbeat {
            instance_id: instance,
            labels: Labels { version: Some("1.2\u{7}".to_owned()) },
            state: Health::Degraded,
            error_message: Some("slow\u{1b}[2J".to_owned()),
            checkpoint: Some(ConnectorCheckpoint {
                cursor: Some("12\n34".to_owned()),
                updated_at_micros: Some(1_771_151_400 * SECOND),
            }),
            capabilities: Some(r#"{"role":"standby"}"#.to_owned()),
            ..heartbeat("telegram_bot", NASTY)
        };
        place.beat(troubled, TimeSource::Now);
        place.beat(heartbeat("gmail", "me@example.org"), TimeSource::At(now() - 600 * SECOND));
        let added = place.json(&["add", "slack", " team "]);
        let slack = json!({ "connector_type": "slack", "endpoint_identity": "team" });
        assert_eq!((&added["added"], &added["endpoint_identity"]), (&json!(true), &json!("team")));
        assert_eq!(place.json(&["add", "slack", "team"])["added"], false);

        listed(&place);
        shown(&place, instance);
        archived_and_back(&place, &slack);
        deleted(&place);
    }
}

fn listed(place: &Place) {
    // Ordered by type: gmail, slack, telegram_bot.
    assert_eq!(place.liveness(&[]), ["stale", "unknown", "online"]);
    assert_eq!(place.liveness(&["--liveness", "spec5"]), ["offline", "unknown", "online"]);
    assert_eq!(place.liveness(&["--liveness", "1h,2h"]), ["online", "unknown", "online"]);
    let listed = place.run(&["connectors", "ls"]);
    listed.hides("\u{1b}");
    listed.hides("\u{202e}");
    let lines: Vec<&str> = listed.stdout.lines().collect();
    let heads = "TYPE IDENTITY LIVENESS STATE HEARD INGESTED_TODAY FAILED_TODAY VERSION";
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>().join(" "), heads);
    let row = lines[1].split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(row.starts_with("gmail me@example.org stale healthy 10 minutes ago "), "{row}");
    assert!(lines[2].contains("never"), "{lines:?}");
    assert!(lines[3].contains(NASTY_SHOWN) && lines[3].ends_with("1.2\\u{7}"), "{lines:?}");
}

fn shown(place: &Place, instance: Uuid) {
    let shown = place.json(&["show", "telegram_bot", NASTY]);
    let summary = &place.ls(&[])[2];
    for (field, value) in summary.as_object().unwrap() {
        assert_eq!(&shown[field], value, "{field} is the same in a list");
    }
    assert_eq!(shown["endpoint_identity"], NASTY);
    assert_eq!(shown["checkpoint"]["cursor"], "12\n34");
    assert_eq!(shown["counters"]["messages_ingested"], 42);
    let instances = shown["instances"].as_array().unwrap();
    assert_eq!(instances.len(), 1);
    assert_eq!(instances[0]["instance_id"], instance.to_string());
    assert_eq!(instances[0]["capabilities"], json!({ "role": "standby" }));
    let text = place.run(&["connectors", "show", "telegram_bot", NASTY]);
    text.hides("\u{1b}");
    for line in [
        "liveness: online",
        "state: degraded: slow\\u{1b}[2J",
        "registered by: its first heartbeat",
        "checkpoint: 12\\n34, updated 2026-02-15T10:30:00.000Z",
        "counters: messages ingested 42, messages failed 1, source api calls 0, checkpoint saves \
         0, dedupe accepted 0",
    ] {
        assert!(text.stdout.lines().any(|it| it == line), "{line}: {text:?}");
    }
    let row = text.stdout.lines().find(|line| line.starts_with(&instance.to_string())).unwrap();
    assert!(row.ends_with("1.2\\u{7}  slow\\u{1b}[2J"), "{row}");
    let unheard = place.run(&["connectors", "show", "slack", "team"]).ok();
    assert!(unheard.contains("\nheard: never\n"), "{unheard}");
    assert!(unheard.contains("\nregistered by: an operator\n"), "{unheard}");
}

/// Archived connectors are in a list of their own.
fn archived_and_back(place: &Place, slack: &Value) {
    let archive = ["archive", "slack", "team", "--reason", "moved"];
    let told = |dry_run: bool, archived: bool, changed: bool| {
        let mut told = slack.clone();
        told["dry_run"] = dry_run.into();
        told["archived"] = archived.into();
        told["changed"] = changed.into();
        told
    };
    let with = |more: &'static str| [&archive[..], &[more]].concat();
    assert_eq!(place.json(&with("--dry-run")), told(true, true, true));
    assert_eq!(place.ls(&[]).len(), 3, "a dry run changes nothing");
    assert_eq!(place.json(&archive), told(false, true, true));
    assert_eq!(place.json(&archive), told(false, true, false), "twice");
    let again = place.run(&[&["connectors"], &archive[..]].concat()).ok();
    assert_eq!(again, "slack team was already archived\n");
    assert_eq!(place.ls(&[]).len(), 2);
    let away = place.ls(&["--archived"]);
    assert_eq!(away.len(), 1);
    assert_eq!(away[0]["endpoint_identity"], "team");
    assert!(!place.json(&["show", "slack", "team"])["archived_at"].is_null());
    assert_eq!(place.json(&with("--undo")), told(false, false, true));
    assert_eq!(place.json(&with("--undo")), told(false, false, false));
    assert_eq!(place.ls(&[]).len(), 3);
    // An online connector will be unarchived by its next heartbeat.
    let alive = ["connectors", "archive", "telegram_bot", NASTY, "--reason", "x"];
    let ran = place.run(&alive);
    assert!(ran.stderr.contains("its next heartbeat will unarchive it"), "{ran:?}");
    place.beat(heartbeat("telegram_bot", NASTY), TimeSource::Now);
    assert!(place.ls(&["--archived"]).is_empty());
}

fn deleted(place: &Place) {
    let delete = ["connectors", "delete", "gmail", "me@example.org", "--reason", "gone"];
    let dry = place.run(&[&delete[..], &["--dry-run", "--json"]].concat()).json();
    assert_eq!((&dry["deleted"], &dry["dry_run"]), (&json!(false), &json!(true)));
    let done = place.run(&delete).ok();
    assert_eq!(done, "gmail me@example.org is deleted, with its history and its statistics\n");
    place.run(&delete).refused("SW004");
    place.run(&["connectors", "show", "gmail", "me@example.org"]).refused("SW004");
    assert_eq!(place.ls(&[]).len(), 2);
    let alive = ["connectors", "delete", "telegram_bot", NASTY, "--reason", "x"];
    let ran = place.run(&alive);
    assert!(ran.stderr.contains("its next heartbeat will register it again"), "{ran:?}");

    // The audit trail names the operator; its entries are found by the printed name.
    let trail = place.run(&["token", "audit", "--json"]).json()["audit"].clone();
    let newest = &trail[0];
    assert_eq!((&newest["action"], &newest["by"]), (&json!("connector_delete"), &json!("ann")));
    assert_eq!(newest["metadata"]["endpoint_identity"], NASTY);
    let on = newest["on"].as_str().unwrap();
    let of_it = place.run(&["token", "audit", on, "--json"]).json()["audit"].clone();
    let actions = of_it.as_array().unwrap().iter().map(|entry| entry["action"].as_str().unwrap());
    assert_eq!(actions.collect::<Vec<_>>(), ["connector_delete", "connector_archive"]);
}

/// The list has more than one page.
#[test]
fn all_pages_are_followed() {
    let tenure = Tenure::new();
    let place = Place { store: tenure.sqlite("many.db"), tenure };
    place.run(&["migrate"]).ok();
    place.with(async |registry| {
        for n in 0..501 {
            let (connector_type, endpoint_identity) =
                (format!("t{}", n % 3), format!("bot-{n:05}"));
            let name = storage::ConnectorKey { connector_type, endpoint_identity };
            assert!(registry.register(&name, "test").await.unwrap());
        }
    });
    let listed = place.ls(&[]);
    let names: Vec<_> = listed
        .iter()
        .map(|it| ["connector_type", "endpoint_identity"].map(|name| it[name].as_str().unwrap()))
        .collect();
    assert_eq!(names.len(), 501);
    assert!(names.is_sorted_by(|a, b| a < b), "in order, and none twice");
    assert_eq!(place.run(&["connectors", "ls"]).ok().lines().count(), 502);
}

#[test]
fn what_makes_no_sense_is_refused_with_what_would() {
    let tenure = Tenure::new();
    let secret = format!("sw_live_{}", "aB3".repeat(10) + "xy");
    let long = "x".repeat(1025);
    for (words, says) in [
        (&[][..], "archive"),
        (&["show", "slack"], "<IDENTITY>"),
        (&["show", "", "team"], "1 to 128 bytes"),
        (&["show", &long[..129], "team"], "1 to 128 bytes"),
        (&["show", "postgres://me:s3cret@h/db", "team"], "1 to 128 bytes"),
        (&["show", "slack", " \t"], "1 to 1024 bytes"),
        (&["show", "slack", &long], "1 to 1024 bytes"),
        (&["show", "slack", &secret], "not a token"),
        (&["add", "sla\u{1b}ck", "team"], "control characters"),
        (&["archive", "slack", "team"], "--reason"),
        (&["archive", "slack", "team", "--reason", " "], "--reason"),
        (&["delete", "slack", "team"], "--reason"),
        (&["ls", "--liveness", "soon"], "120s,600s"),
        (&["ls", "--liveness", "600s,120s"], "at least as long"),
        (&["ls", "--liveness", "0s,1s"], "more than 0"),
    ] {
        let ran = tenure.run(&[&["connectors"], words].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{words:?}: {ran:?}");
        assert!(ran.stderr.contains(says), "{words:?} should say {says}: {ran:?}");
        ran.hides(&secret);
        ran.hides("s3cret");
    }
    let mut command = tenure.command(&["connectors", "ls"]);
    let ran = Ran::of(command.env("TENURE_LIVENESS", "me:s3cret@h").output().unwrap());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    ran.hides("s3cret");

    let commands: [&[&str]; 5] = [
        &["connectors", "ls"],
        &["connectors", "add", "slack", "team"],
        &["connectors", "show", "slack", "imap://me:s3cret@h"],
        &["connectors", "archive", "slack", "team", "--reason", "x"],
        &["connectors", "delete", "slack", "team", "--reason", "x", "--dry-run"],
    ];
    for words in commands {
        tenure.run(words).refused("ST015");
        tenure.run(&[words, &["--store", "redis://127.0.0.1:1/0"]].concat()).refused("ST001");
    }
    assert!(!tenure.path("tenure.db").exists());
    tenure.run(&["migrate"]).ok();
    for words in &commands[2..] {
        let ran = tenure.run(words);
        ran.refused("SW004");
        ran.hides("s3cret");
    }
}
