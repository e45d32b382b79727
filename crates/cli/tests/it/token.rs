//! `tenure token` and `tenure fence` on the store of a switchboard.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tenure_core::{DutyKey, Epoch, InstanceId};
use tenure_store::{IfAbsent, StoreUrl};
use tenure_switchboard::storage::{self, IngestFence, Storage, Submission, TokenUsage};
use testkit::{TEST_POSTGRES, service};

use crate::stores::name;
use crate::tenure::{Ran, Tenure};

const SCOPE: [&str; 6] =
    ["--channel", "telegram", "--provider", "telegram", "--endpoint", "bot_alpha"];

/// A store of its own for the command.
struct Place {
    tenure: Tenure,
    store: String,
}

impl Place {
    fn sqlite() -> Self {
        let tenure = Tenure::new();
        Self { store: tenure.sqlite("tokens.db"), tenure }
    }

    fn postgres() -> Option<Self> {
        let server = service(TEST_POSTGRES)?;
        Some(Self { store: format!("{server}?schema={}", name()), tenure: Tenure::new() })
    }

    fn run(&self, words: &[&str]) -> Ran {
        let mut command = self.tenure.command(words);
        command.env("TENURE_STORE", &self.store).env("TENURE_OPERATOR", "ann\u{1b}[31m");
        Ran::of(command.output().unwrap())
    }

    /// Creates a token; returns its id and its text.
    fn create(&self, more: &[&str]) -> (String, String) {
        let words = [&["token", "create", "--json"], more].concat();
        let made = self.run(&words).json();
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        (text("token_id"), text("token"))
    }

    fn tokens(&self, more: &[&str]) -> Vec<Value> {
        let listed = self.run(&[&["token", "list", "--json"], more].concat()).json();
        listed["tokens"].as_array().unwrap().clone()
    }

    /// Runs an operation that only the server does.
    fn with<T>(&self, work: impl AsyncFnOnce(&dyn Storage) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let url = StoreUrl::parse(&self.store).unwrap();
            work(&*storage::open(&url, IfAbsent::Refuse).await.unwrap()).await
        })
    }

    fn use_token(&self, id: &str) {
        let day = jiff::Timestamp::from_millisecond(
            i64::try_from(tenure_duty::process::unix_ms()).unwrap(),
        );
        let day = day.unwrap().strftime("%Y-%m-%d").to_string();
        let usage = TokenUsage {
            token_id: id.to_owned(),
            day,
            requests: 3,
            accepted: 7,
            duplicates: 2,
            refused: 1,
        };
        self.with(async |storage| storage.add_usage(&[usage]).await.unwrap());
    }
}

/// A token is printed only once, so a closed pipe is an error.
#[test]
fn a_token_that_nobody_reads_is_told_of() {
    let place = Place::sqlite();
    for json in [&[][..], &["--json"]] {
        let words = [&["token", "create"], &SCOPE[..], json].concat();
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = place.tenure.command(&words);
        let command = command.env("TENURE_STORE", &place.store).stdout(writer);
        let ran = Ran::of(command.output().unwrap());
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.contains("was created but not printed"), "{ran:?}");
        let made = place.tokens(&[]).pop().unwrap();
        assert!(ran.stderr.contains(made["token_id"].as_str().unwrap()), "{ran:?}");
    }
    assert_eq!(place.tokens(&[]).len(), 2);
}

#[test]
fn a_token_is_shown_once_and_never_again() {
    let place = Place::sqlite();
    let words = [&["token", "create", "--description", "for the bot"][..], &SCOPE].concat();
    let made = place.run(&words);
    assert!(made.stderr.contains("cannot be shown again"), "{made:?}");
    let said = made.stderr.clone();
    let text = made.ok();
    let secret = text.trim();
    assert!(tenure_switchboard::token::digest(secret).is_some(), "the token alone is printed");
    assert!(!said.contains(secret), "{said}");
    let id = said.split(':').next().unwrap();
    let hash = tenure_switchboard::token::digest(secret).unwrap();
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();

    let listed = place.run(&["token", "list"]);
    let line = listed.stdout.lines().nth(1).unwrap();
    let cells: Vec<&str> = line.split_whitespace().collect();
    let expected = [id, "good", "live", "ingest", "telegram/telegram/bot_alpha"];
    assert_eq!(cells[..5], expected, "{line}");
    for words in [
        &["token", "list"][..],
        &["token", "list", "--json"],
        &["token", "show", id],
        &["token", "show", id, "--json"],
        &["token", "audit"],
        &["token", "audit", id, "--json"],
        &["token", "usage", id],
    ] {
        let ran = place.run(words);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.hides(secret);
        ran.hides(&secret[8..]);
        ran.hides(&hash);
        ran.hides("\u{1b}");
    }
    let shown = place.run(&["token", "show", id, "--json"]).json();
    assert_eq!(place.tokens(&[]), std::slice::from_ref(&shown));
    let scope = json!({
        "channel": "telegram", "provider": "telegram", "endpoint_identity": "bot_alpha"
    });
    for (name, value) in [
        ("token_id", json!(id)),
        ("state", json!("good")),
        ("environment", json!("live")),
        ("roles", json!(["ingest"])),
        ("scope", scope),
        ("created_by", json!("ann\\u{1b}[31m")),
        ("description", json!("for the bot")),
        ("replaces", Value::Null),
        ("last_used_at", Value::Null),
        ("revoked_at", Value::Null),
    ] {
        assert_eq!(shown[name], value, "{name}");
    }
}

#[test]
fn a_token_is_replaced_without_shutting_anybody_out() {
    // The storage suite covers the other cases on PostgreSQL, and is faster.
    for place in [Some(Place::sqlite()), Place::postgres()].into_iter().flatten() {
        let roles = ["--role", "read", "--role", "ingest", "--type", "development"];
        let (old, _) = place.create(&[&SCOPE[..], &roles].concat());
        place.use_token(&old);
        let made = place.run(&["token", "create", "--replaces", &old]);
        for word in ["next:", "tenure token usage", "tenure token revoke", &old] {
            assert!(made.stderr.contains(word), "{word}: {made:?}");
        }
        assert!(made.ok().starts_with("sw_dev_"), "the environment is inherited");
        let tokens = place.tokens(&[]);
        let (first, second) = (&tokens[0], &tokens[1]);
        let states: Vec<_> = tokens.iter().map(|token| &token["state"]).collect();
        assert_eq!(states, ["good", "good"], "both meanwhile");
        assert_eq!(second["replaces"], json!(old));
        assert_eq!(second["roles"], json!(["ingest", "read"]));
        for same in ["roles", "scope", "environment"] {
            assert_eq!(first[same], second[same], "{same}");
        }
        // Given roles replace the inherited ones; a token with other roles inherits no scope.
        let given = ["--replaces", &old, "--role", "admin", "--env", "staging"];
        let (reader, text) = place.create(&given);
        assert!(text.starts_with("sw_staging_"));
        let shown = place.run(&["token", "show", &reader, "--json"]).json();
        assert_eq!((&shown["roles"], &shown["scope"]), (&json!(["admin"]), &Value::Null));

        // A token in use is not revoked without --force.
        let revoke = ["token", "revoke", &old, "--reason", "replaced"];
        let ran = place.run(&revoke);
        ran.refused("SW003");
        assert!(ran.stderr.contains("was last used"), "{ran:?}");
        let dry = place.run(&[&revoke[..], &["--dry-run"]].concat());
        dry.refused("SW003");
        let dry = place.run(&[&revoke[..], &["--force", "--dry-run", "--json"]].concat()).json();
        assert_eq!((&dry["changed"], &dry["dry_run"]), (&json!(true), &json!(true)));
        assert_eq!(place.tokens(&[])[0]["state"], "good");
        let done = place.run(&[&revoke[..], &["--force"]].concat()).ok();
        assert!(done.starts_with(&format!("{old} is revoked")), "{done}");
        let again = place.run(&[&revoke[..], &["--json"]].concat()).json();
        assert_eq!(again["changed"], false);
        let shown = place.run(&["token", "show", &old, "--json"]).json();
        let told = (&shown["state"], &shown["revoked_by"], &shown["revoked_reason"]);
        assert_eq!(told, (&json!("revoked"), &json!("ann\\u{1b}[31m"), &json!("replaced")));

        let audit = place.run(&["token", "audit", "--json"]).json();
        let audit = audit["audit"].as_array().unwrap().clone();
        let actions: Vec<_> = audit.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
        assert_eq!(actions, ["revoke", "rotate", "rotate", "create"], "newest first");
        let of_old = place.run(&["token", "audit", &old, "--json", "--limit", "1"]).json();
        assert_eq!(of_old["audit"].as_array().unwrap().len(), 1);
        assert_eq!(of_old["audit"][0]["reason"], "replaced");
    }
}

#[test]
fn tokens_are_found_by_their_end_and_their_use() {
    let place = Place::sqlite();
    let (soon, _) = place.create(&["--role", "read", "--expires-in", "1h"]);
    let (later, _) = place.create(&["--role", "admin"]);
    let ids = |more: &[&str]| -> BTreeSet<String> {
        let id = |token: Value| token["token_id"].as_str().unwrap().to_owned();
        place.tokens(more).into_iter().map(id).collect()
    };
    let both = BTreeSet::from([soon.clone(), later.clone()]);
    assert_eq!(ids(&[]), both);
    assert_eq!(ids(&["--expires-within", "7d"]), BTreeSet::from([soon.clone()]));
    assert_eq!(ids(&["--expires-within", "52w"]), both);
    assert_eq!(ids(&["--unused-since", "1d"]), BTreeSet::new(), "they are new");
    assert_eq!(ids(&["--unused-since", "0s"]), both);
    place.run(&["token", "revoke", &soon, "--reason", "x"]).ok();
    assert_eq!(ids(&["--expires-within", "7d"]), BTreeSet::new(), "it has ended");

    place.use_token(&later);
    let usage = place.run(&["token", "usage", "--json"]).json();
    let usage = usage["usage"].as_array().unwrap();
    assert_eq!(usage.len(), 1);
    let counts = ["requests", "accepted", "duplicates", "refused"];
    assert_eq!(counts.map(|name| usage[0][name].as_i64().unwrap()), [3, 7, 2, 1]);
    assert_eq!(usage[0]["token_id"], json!(later));
    assert!(!place.tokens(&[])[1]["last_used_at"].is_null());
    let of_soon = place.run(&["token", "usage", &soon, "--since", "30d", "--json"]).json();
    assert_eq!(of_soon["usage"], json!([]));
}

#[test]
fn a_fence_is_listed_and_forgotten() {
    let place = Place::sqlite();
    place.run(&["migrate"]).ok();
    assert_eq!(place.run(&["fence", "list", "--json"]).json(), json!({ "fences": [] }));
    let fence = IngestFence {
        duty: DutyKey::new("mail/x", "in box").unwrap(),
        epoch: Epoch::new(7).unwrap(),
        instance: InstanceId::new("api-1").unwrap(),
    };
    let announce = Submission { items: Vec::new(), fence: Some(fence), token_id: None };
    place.with(async |storage| storage.commit(&[announce]).await.unwrap());
    let listed = place.run(&["fence", "list"]);
    let duty = "mail%2Fx/in%20box";
    let line = listed.stdout.lines().nth(1).unwrap();
    assert_eq!(line.split_whitespace().take(4).collect::<Vec<_>>(), [duty, "all", "7", "api-1"]);

    let reset = ["fence", "reset", duty, "--reason", "the store was made anew", "--json"];
    let dry = place.run(&[&reset[..], &["--dry-run"]].concat()).json();
    let done = place.run(&reset).json();
    assert_eq!((&dry["dry_run"], &done["dry_run"]), (&json!(true), &json!(false)));
    assert_eq!((&done["duty"], &done["was"]), (&json!(duty), &dry["was"]));
    let was = &done["was"][0];
    assert_eq!((&was["epoch"], &was["instance"]), (&json!(7), &json!("api-1")), "{done}");
    for more in [&[][..], &["--dry-run"]] {
        place.run(&[&["fence", "reset", duty, "--reason", "x"], more].concat()).refused("SW002");
    }
    let audit = place.run(&["token", "audit", duty, "--json"]).json();
    assert_eq!(audit["audit"][0]["action"], "fence_reset");
    assert_eq!(audit["audit"][0]["reason"], "the store was made anew");
}

#[test]
fn a_dry_run_makes_nothing() {
    let tenure = Tenure::new();
    let words = [&["token", "create", "--dry-run"][..], &SCOPE].concat();
    let ran = tenure.run(&words);
    assert!(ran.stderr.contains("a dry run: nothing was changed"), "{ran:?}");
    let text = ran.ok();
    assert_eq!(
        text,
        "a token would be created: ingest for telegram/telegram/bot_alpha, for 90 days\n"
    );
    assert!(!tenure.path("tenure.db").exists());
    let planned = tenure.run(&[&words[..], &["--json"]].concat()).json();
    assert_eq!((&planned["token"], &planned["token_id"]), (&Value::Null, &Value::Null));
    assert_eq!(planned["expires_in_seconds"], 90 * 86_400);
    tenure.run(&["migrate"]).ok();
    tenure.run(&words).ok();
    assert_eq!(tenure.run(&["token", "list", "--json"]).json(), json!({ "tokens": [] }));
}

#[test]
fn what_makes_no_sense_is_refused_with_what_would() {
    let tenure = Tenure::new();
    let secret = format!("sw_live_{}", "aB3".repeat(11));
    let secret = &secret[..40];
    let long = "x".repeat(1025);
    let scope = |channel, provider, endpoint| {
        ["token", "create", "--channel", channel, "--provider", provider, "--endpoint", endpoint]
    };
    for (words, says) in [
        (&["token"][..], "create"),
        (&["token", "create"], "--channel, --provider and --endpoint"),
        (&["token", "create", "--role", "read", "--role", "root"], "ingest, read, admin"),
        (&["token", "create", "--env", "prod"], "live, staging, dev"),
        (&["token", "create", "--type", "person"], "connector, development"),
        (&["token", "create", "--channel", "email"], "all three or none"),
        (&scope("Fax!", "imap", "x"), "1 to 64 characters of a-z, 0-9 and _"),
        (&scope("email", "imap", " \t"), "1 to 1024 bytes"),
        (&scope("email", "imap", &long), "1 to 1024 bytes"),
        (&[&scope("email", "imap", "x")[..], &["--role", "admin"]].concat(), "--role ingest"),
        (&[&scope("email", "imap", "x")[..], &["--expires-in", "1s"]].concat(), "--expires-in"),
        (&[&scope("email", "imap", "x")[..], &["--expires-in", "soon"]].concat(), "90d"),
        (&[&scope("email", "imap", "x")[..], &["--description", &long]].concat(), "--description"),
        (&["token", "create", "--replaces", "tok_1"], "tenure token list"),
        (&["token", "create", "--replaces", secret], "tok_ and 16 characters"),
        (&["token", "list", "--expires-within=-1d"], "negative"),
        (&["token", "list", secret], "unexpected"),
        (&["token", "show"], "<ID>"),
        (&["token", "show", secret], "tok_ and 16 characters"),
        (&["token", "revoke", "tok_0123456789abcdef"], "--reason"),
        (&["token", "revoke", "tok_0123456789abcdef", "--reason", " "], "--reason"),
        (&["token", "usage", "x"], "tok_ and 16 characters"),
        (&["token", "usage", "--since", "x"], "90d"),
        (&["token", "audit", "--limit", "0"], "1 to 10000"),
        (&["token", "audit", secret], "tok_ and 16 characters"),
        (&["fence", "reset", "a/b"], "--reason"),
        (&["fence", "reset", "postgres://me:s3cret@h/db", "--reason", "x"], "not the name"),
    ] {
        let ran = tenure.run(words);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{words:?}: {ran:?}");
        assert!(ran.stderr.contains(says), "{words:?} should say {says}: {ran:?}");
        ran.hides(secret);
        ran.hides("s3cret");
    }
    tenure.run(&["fence", "reset", "ab", "--reason", "x"]).refused("ST011");
    tenure.run(&scope("fax", "imap", "x")).refused("SW009");
    tenure.run(&scope("email", "slack", "x")).refused("SW009");
    assert!(!tenure.path("tenure.db").exists());

    let id = "tok_0123456789abcdef";
    let commands: [&[&str]; 6] = [
        &["token", "list"],
        &["token", "show", id],
        &["token", "usage"],
        &["token", "revoke", id, "--reason", "x"],
        &["token", "create", "--replaces", id, "--dry-run"],
        &["fence", "list"],
    ];
    for words in commands {
        tenure.run(words).refused("ST015");
        tenure.run(&[words, &["--store", "redis://127.0.0.1:1/0"]].concat()).refused("ST001");
    }
    assert!(!tenure.path("tenure.db").exists());
    tenure.run(&["migrate"]).ok();
    for words in [commands[1], commands[3], commands[4], &["token", "usage", id]] {
        tenure.run(words).refused("SW002");
    }
    tenure.run(&["token", "create", "--replaces", id]).refused("SW002");
}
