//! A storage that version 0.1 has written, used by this version: what it holds is still there, and
//! positions, keys, fences, sums and statistics continue from where they were.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::Connection;
use serde_json::Value;
use tempfile::TempDir;
use tenure_core::Epoch;
use tenure_store::{IfAbsent, StoreUrl};
use tenure_switchboard::storage::{
    self, Admission, Attempt, ConnectorKey, ConnectorQuery, DeadLetter, HistoryRetention,
    InboxQuery, InboxRetention, LetterQuery, LetterResolution, MessageLookup, Period, PostOutcome,
    ResolveOutcome, SeriesStep, Storage, Submission, SubmittedEvent, TimeSource,
};
use tenure_wire::heartbeat::Counters;
use tenure_wire::ingest::{self, InboxCursor, IngestEvent};
use testkit::{TEST_POSTGRES, old, service};
use uuid::Uuid;

use crate::place::Place;
use crate::storage::kit::{
    attempt, by_me, commit_one, diverged, fence, follow, inbox, is_fenced, letter, positions, sha,
    stored,
};
use crate::storage::told::{HOUR, MINUTE, beat, count, history, named, of, series, shown, take};

/// 2026-11-16T19:05:00Z: minutes after the last heartbeat of the old version, in the same hour.
const LATER: i64 = 1_794_855_900_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn sqlite() {
    works(Place::old_sqlite().await, "sqlite").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres() {
    if let Some(place) = Place::old_postgres().await {
        works(place, "postgres").await;
    }
}

async fn works(place: Place, kind: &'static str) {
    let old = OldStorage { kind, place };
    old.tokens_open().await;
    old.events_are_known_and_positions_continue().await;
    old.fences_hold().await;
    old.letters_wait().await;
    old.sums_and_statistics_continue().await;
    old.outcomes_are_taken().await;
    old.channels_and_trails_are_there().await;
    old.retention_deletes().await;
    old.a_new_incarnation_is_far_above().await;
}

struct OldStorage {
    /// Folder with what version 0.1 printed about it.
    kind: &'static str,
    place: Place,
}

impl OldStorage {
    fn storage(&self) -> &Arc<dyn Storage> {
        &self.place.storage
    }

    /// Returns what a command or the server printed.
    fn printed(&self, name: &str) -> Value {
        let path = old::path(&format!("{}/{name}.json", self.kind));
        let mut value: Value =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        match value.get_mut("stdout") {
            Some(stdout) => stdout.take(),
            None => value,
        }
    }

    fn token(&self, field: &str) -> String {
        let token: Value = serde_json::from_str(&old::token(self.kind).unwrap()).unwrap();
        text(&token[field])
    }

    /// Returns the stored events with their request ids, as a connector would send them again.
    async fn events(&self) -> Vec<(Uuid, IngestEvent)> {
        let messages = inbox(self.storage()).await;
        let read = |envelope: &str| ingest::read(envelope.as_bytes()).unwrap();
        messages.iter().map(|it| (it.request_id, read(&it.envelope))).collect()
    }

    /// Returns a submission with the old token.
    fn submission(&self, events: impl IntoIterator<Item = IngestEvent>) -> Submission {
        let item = |event| SubmittedEvent { request_id: Uuid::now_v7(), event };
        let items = events.into_iter().map(item).collect();
        Submission { items, fence: None, token_id: Some(self.token("token_id")) }
    }

    async fn tokens_open(&self) {
        let presented = |secret: &str| Attempt { hash: Some(sha(secret)), ..attempt("", "::1") };
        let admitted = self.storage().admit(&presented(&self.token("token"))).await.unwrap();
        let Admission::Token(token) = admitted else { panic!("{admitted:?}") };
        assert_eq!(token.token_id, self.token("token_id"));
        assert_eq!(token.roles, ["ingest", "read", "admin"]);
        let scope = token.scope.unwrap();
        assert_eq!((&*scope.channel, &*scope.endpoint_identity), ("telegram", "test_bot"));
        let guessed = self.storage().admit(&presented("sw_live_guessed")).await.unwrap();
        assert_eq!(guessed, Admission::Unknown);
        let tokens = self.storage().tokens().await.unwrap();
        let [_, revoked] = &tokens[..] else { panic!("{tokens:?}") };
        assert_eq!(revoked.revoked_reason.as_deref(), Some("test"));
        let again = self.storage().revoke_token(&revoked.token_id, "me", "again").await.unwrap();
        assert_eq!(again, Some(false));
        let usage = self.storage().usage(Some(&token.token_id), "2026-11-16").await.unwrap();
        let [day] = &usage[..] else { panic!("{usage:?}") };
        assert_eq!(
            (&*day.day, day.requests, day.accepted, day.duplicates),
            ("2026-11-16", 7, 3, 1)
        );
        self.storage().add_usage(&usage).await.unwrap();
        let usage = self.storage().usage(Some(&token.token_id), "2026-11-16").await.unwrap();
        assert_eq!(usage[0].requests, 14);
    }

    async fn events_are_known_and_positions_continue(&self) {
        let recorded = self.printed("inbox");
        let data = recorded["data"].as_array().unwrap();
        let events = self.events().await;
        assert_eq!(events.len(), 3);
        for ((request_id, event), recorded) in events.iter().zip(data) {
            assert_eq!(request_id.to_string(), text(&recorded["request_id"]));
            let context = &recorded["request_context"];
            assert_eq!(event.dedupe.key, text(&context["dedupe_key"]));
            // Sent again: the old id, and the same content.
            let again = commit_one(self.storage(), self.submission([event.clone()])).await;
            let outcome = stored(&again)[0];
            assert_eq!((outcome.request_id, outcome.duplicate), (*request_id, true));
            assert!(!outcome.reused, "{event:?}");
            let looked_up = self.storage().message(*request_id).await.unwrap();
            assert!(
                matches!(looked_up, MessageLookup::Message(it) if it.request_id == *request_id)
            );
        }
        let other = IngestEvent { payload_digest: sha("other"), ..events[0].1.clone() };
        assert!(stored(&commit_one(self.storage(), self.submission([other])).await)[0].reused);
        // New events come after the old ones, for readers with cursors of the old version, too.
        let new = ["5", "6"].map(|id| new_event(&events[0].1, id));
        let taken = commit_one(self.storage(), self.submission(new)).await;
        assert!(stored(&taken).iter().all(|outcome| !outcome.duplicate));
        // On PostgreSQL, restoring on another server begins a new incarnation, far above.
        let all = positions(&inbox(self.storage()).await);
        assert_eq!((&all[..3], all.len()), (&[1, 2, 3][..], 5));
        assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
        for (index, message) in data.iter().enumerate() {
            let cursor: InboxCursor = text(&message["cursor"]).parse().unwrap();
            let query = InboxQuery { after: cursor, limit: 9, ..InboxQuery::default() };
            let rest = positions(&follow(self.storage(), query).await);
            assert_eq!(rest, all[index + 1..], "after {cursor}");
        }
        let foreign: InboxCursor = "2.0123456789ab".parse().unwrap();
        let query = InboxQuery { after: foreign, limit: 9, ..InboxQuery::default() };
        assert_eq!(diverged(self.storage(), &query).await.last, all[4]);
    }

    async fn fences_hold(&self) {
        let known = self.storage().fences(None, "", 9).await.unwrap();
        let [known] = &known[..] else { panic!("{known:?}") };
        let newest = &known.newest;
        assert_eq!(
            (&*newest.duty, newest.epoch.get(), &*newest.instance),
            ("telegram/bot-42", 20, "b")
        );
        let under = |epoch, instance| Submission {
            fence: Some(fence("bot-42", epoch, instance)),
            ..self.submission([])
        };
        for (epoch, instance) in [(19, "b"), (20, "a"), (1, "a")] {
            is_fenced(&commit_one(self.storage(), under(epoch, instance)).await, 20, "b");
        }
        stored(&commit_one(self.storage(), under(20, "b")).await);
        stored(&commit_one(self.storage(), under(21, "c")).await);
        is_fenced(&commit_one(self.storage(), under(20, "b")).await, 21, "c");
    }

    async fn letters_wait(&self) {
        let query = LetterQuery { limit: 9, ..LetterQuery::default() };
        let letters = self.storage().letters(&query).await.unwrap();
        let [waiting] = &letters[..] else { panic!("{letters:?}") };
        let recorded = self.printed("dead-letters");
        assert_eq!(waiting.letter.id.to_string(), text(&recorded["data"][0]["id"]));
        assert_eq!(self.storage().pending_letters().await.unwrap(), 1);
        // The same letter again is the old one.
        let again = DeadLetter { id: Uuid::now_v7(), ..waiting.letter.clone() };
        let token_id = self.token("token_id");
        let posted = self.storage().post_letter(&again, None, Some(&token_id)).await.unwrap();
        assert_eq!(posted, PostOutcome::Kept { id: waiting.letter.id, duplicate: true });
        let posted = self.storage().post_letter(&letter("new"), None, None).await.unwrap();
        assert!(matches!(posted, PostOutcome::Kept { duplicate: false, .. }));
        // It is replayed: its event was never stored.
        let event = ingest::read(waiting.letter.envelope.as_bytes()).unwrap();
        let replayed = stored(&commit_one(self.storage(), self.submission([event])).await)[0];
        assert!(!replayed.duplicate);
        let resolution = LetterResolution {
            id: waiting.letter.id,
            state: "replayed",
            decision: by_me("it works now"),
            request_id: Some(replayed.request_id),
        };
        let resolve = || async { self.storage().resolve_letter(&resolution).await.unwrap() };
        assert_eq!(resolve().await, Ok(ResolveOutcome::Done));
        assert_eq!(resolve().await, Ok(ResolveOutcome::Before));
    }

    async fn sums_and_statistics_continue(&self) {
        let (storage, name) = (self.storage(), bot());
        let sums =
            |n| Counters { messages_ingested: n, source_api_calls: n, ..Counters::default() };
        let before = shown(storage, &name).await;
        assert_eq!(before.connector.counters, sums(9));
        assert_eq!((before.instances[0].beats, before.instances[0].resets), (2, 0));
        let day = series(storage, &name, SeriesStep::Day).await;
        assert_eq!(day.values().map(|it| it.messages_ingested).collect::<Vec<_>>(), [9]);
        // The same instance sends its next heartbeat, and another one starts.
        let told = |instance, uptime, done| {
            let mut told = of(&name, beat(instance, LATER, uptime, 0));
            told.heartbeat.counters = sums(done);
            told
        };
        let next = take(storage, &told(7, 320, 12), LATER).await;
        assert!(!next.registered && !next.reset && !next.jumped && !next.late, "{next:?}");
        take(storage, &told(8, 5, 4), LATER + MINUTE).await;
        let after = shown(storage, &name).await;
        assert_eq!((after.connector.counters, after.instances.len()), (sums(16), 2));
        assert_eq!(after.connector.first_seen_at, before.connector.first_seen_at);
        let deltas: Vec<i64> =
            history(storage, &name).await.iter().map(|it| it.deltas.messages_ingested).collect();
        assert_eq!(deltas, [5, 4, 3, 4]);
        // Only the new ones are counted, by the newest hold.
        assert!(storage.roll_up(Epoch::ZERO, TimeSource::At(LATER)).await.unwrap().fenced);
        assert_eq!(count(storage, 1, LATER + HOUR).await.beats, 2);
        assert_eq!(count(storage, 2, LATER + HOUR).await.beats, 0);
        let counted = || async {
            let mut counts = Vec::new();
            for step in [SeriesStep::Hour, SeriesStep::Day] {
                counts.extend(series(storage, &name, step).await.into_values());
            }
            counts
                .into_iter()
                .map(|it| (it.messages_ingested, it.heartbeat_count))
                .collect::<Vec<_>>()
        };
        assert_eq!(counted().await, [(16, 4), (16, 4)]);
        for period in Period::ALL {
            let (_, sums) = storage.sums(period).await.unwrap();
            assert_eq!(sums[0].messages_ingested, 16, "{period:?}");
        }
        // The history that the old version has kept gives the same numbers.
        assert!(storage.recount(&name, &by_me("check")).await.unwrap().unwrap().is_some());
        count(storage, 3, LATER + HOUR).await;
        assert_eq!(counted().await, [(16, 4), (16, 4)]);
        let query = ConnectorQuery { limit: 9, ..ConnectorQuery::default() };
        assert_eq!(storage.connectors(&query).await.unwrap().connectors.len(), 1);
        let archived = storage.archive(&name, true, &by_me("old")).await.unwrap();
        assert_eq!(archived, Ok(Some(true)));
        assert!(take(storage, &told(8, 125, 5), LATER + 3 * MINUTE).await.revived);
    }

    async fn outcomes_are_taken(&self) {
        let (request_id, _) = self.events().await.remove(0);
        let ConnectorKey { connector_type, endpoint_identity } = bot();
        let outcomes = storage::MessageOutcomes {
            request_id,
            connector_type,
            endpoint_identity,
            acked: vec!["health".to_owned()],
            failed: Vec::new(),
            token_id: Some(self.token("token_id")),
        };
        let receipt = self.storage().report(&outcomes, TimeSource::At(LATER)).await.unwrap();
        assert_eq!(receipt.map(|it| (it.changed, it.found)), Ok((1, true)));
        assert_eq!(count(self.storage(), 3, LATER + 2 * HOUR).await.outcomes, 1);
        assert_eq!(self.storage().fanout("2026-11-01").await.unwrap().len(), 1);
    }

    async fn channels_and_trails_are_there(&self) {
        let channels = self.storage().channels().await.unwrap();
        let voice = channels.iter().find(|it| it.name == "voice").unwrap();
        assert_eq!(voice.providers, ["twilio"]);
        assert_eq!(channels.len(), 6);
        let replaced = self.storage().replace_channel(Some(voice), None, "me").await.unwrap();
        assert!(replaced);
        let trail = self.storage().audit(None, 100).await.unwrap();
        let actions: Vec<&str> = trail.iter().map(|it| &*it.action_type).collect();
        // Newest first.
        assert!(actions.ends_with(&["revoke", "create", "create", "channel_add"]), "{actions:?}");
        assert_eq!(actions[0], "channel_remove");
    }

    async fn retention_deletes(&self) {
        let (storage, place) = (self.storage(), &self.place);
        let (old_id, last) = (self.events().await[0].0, storage.last_position().await.unwrap());
        let year = 365 * 24 * HOUR;
        let kept = InboxRetention { bodies: year, keys: year };
        assert_eq!(storage.prune(kept).await.unwrap().messages, 0);
        // Two years pass.
        place.set_clock(LATER + 2 * year).await;
        let pruned = storage.prune(InboxRetention { bodies: year / 365, keys: 3 * year });
        let pruned = pruned.await.unwrap();
        assert_eq!((pruned.messages >= 3, pruned.keys), (true, 0), "{pruned:?}");
        let looked_up = storage.message(old_id).await.unwrap();
        assert!(matches!(looked_up, MessageLookup::Trimmed { .. }), "{looked_up:?}");
        let pruned = storage.prune(InboxRetention { bodies: 1, keys: 1 }).await.unwrap();
        assert!(pruned.keys >= 3, "{pruned:?}");
        assert_eq!(storage.message(old_id).await.unwrap(), MessageLookup::Nothing);
        assert_eq!(storage.last_position().await.unwrap(), last);
        let keep = HistoryRetention::default();
        let pruned = storage.prune_history(keep, TimeSource::At(LATER + 2 * year)).await.unwrap();
        let beats = pruned.heartbeat_rows_deleted + pruned.heartbeat_partitions_dropped;
        assert!(beats > 0, "{pruned:?}");
    }

    async fn a_new_incarnation_is_far_above(&self) {
        let before = self.storage().last_position().await.unwrap();
        let floor = self.storage().adopt("me").await.unwrap();
        assert!(floor > before + 999_999, "{floor} after {before}");
        let event = ingest::read(ENVELOPE.as_bytes()).unwrap();
        commit_one(self.storage(), self.submission([event])).await;
        assert!(self.storage().last_position().await.unwrap() > floor);
        // A handle that is opened now sees the same.
        let other = self.place.open().await;
        assert!(other.last_position().await.unwrap() > floor);
    }
}

const ENVELOPE: &str = r#"{"schema_version":"ingest.v1",
    "source":{"channel":"telegram","provider":"telegram","endpoint_identity":"test_bot"},
    "event":{"external_event_id":"7","observed_at":"2026-02-15T10:30:00Z"},
    "sender":{"identity":"me"},"payload":{"raw":{},"normalized_text":"hello"}}"#;

fn bot() -> ConnectorKey {
    named("telegram_bot", "test_bot")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Returns an event like this one, with another id.
fn new_event(like: &IngestEvent, id: &str) -> IngestEvent {
    let mut envelope: Value = serde_json::from_str(&like.envelope).unwrap();
    envelope["event"]["external_event_id"] = id.into();
    ingest::read(envelope.to_string().as_bytes()).unwrap()
}

/// Tables of version 0.1 that were brought up to date are those of a new file: columns,
/// constraints, indexes and triggers.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgraded_file_has_the_tables_of_a_new_one() {
    let folder = TempDir::new().unwrap();
    let mut shapes = Vec::new();
    for name in ["old.db", "new.db"] {
        let path = folder.path().join(name);
        if name == "old.db" {
            old::sqlite(&path).unwrap();
        }
        open_both(&StoreUrl::parse(&format!("sqlite:{}", path.display())).unwrap()).await;
        let file = Connection::open(&path).unwrap();
        let sql = "SELECT type || ' ' || name, coalesce(sql, '') FROM sqlite_schema
            UNION ALL SELECT 'migration ' || number, name || breaking FROM migration
            UNION ALL SELECT 'tables ' || number, name || breaking FROM switchboard_migration";
        let mut statement = file.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        shapes.push(rows.map(|row| shape(row.unwrap())).collect::<BTreeMap<_, _>>());
    }
    differ_in_nothing(&shapes[0], &shapes[1], 40);
}

/// The same in PostgreSQL, where functions belong to the tables.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgraded_schema_has_the_tables_and_functions_of_a_new_one() {
    let Some(server) = service(TEST_POSTGRES) else { return };
    let mut shapes = Vec::new();
    let new = format!("new_{}", std::process::id());
    for (url, schema) in [(old::postgres(&server).unwrap(), "tenure"), (server.clone(), &new)] {
        open_both(&StoreUrl::parse(&format!("{url}?schema={schema}")).unwrap()).await;
        let client = crate::postgres::client(&url).await;
        // Names are printed without the schema.
        client.batch_execute(&format!("SET search_path TO {schema}")).await.unwrap();
        let rows = client.query(SHAPE, &[&schema]).await.unwrap();
        let row = |row: &tokio_postgres::Row| {
            shape((row.get(0), row.get::<_, String>(1).replace(&format!("{schema}."), "")))
        };
        shapes.push(rows.iter().map(row).collect::<BTreeMap<_, _>>());
        if schema == new {
            client.batch_execute(&format!("DROP SCHEMA {new} CASCADE")).await.unwrap();
        }
    }
    // The ninth migration leaves this one to replicas of older versions that still run.
    let kept = |name: &String| name.starts_with("function connector_beat(");
    shapes[0].retain(|name, _| !kept(name));
    differ_in_nothing(&shapes[0], &shapes[1], 200);
}

/// Columns, constraints, indexes, triggers and functions, without the history's partitions of days.
const SHAPE: &str = "WITH tables AS (SELECT oid, relname FROM pg_class
        WHERE relnamespace = $1::text::regnamespace AND relname !~ '_p[0-9]{4}')
    SELECT 'column ' || relname || ' ' || attname, concat_ws(' ',
            format_type(atttypid, atttypmod), attnotnull, attidentity, attgenerated,
            pg_get_expr(adbin, adrelid))
        FROM tables JOIN pg_attribute ON attrelid = tables.oid
            LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
        WHERE attnum > 0 AND NOT attisdropped
    UNION ALL SELECT 'constraint ' || relname || ' ' || conname, pg_get_constraintdef(c.oid)
        FROM tables JOIN pg_constraint c ON conrelid = tables.oid
    UNION ALL SELECT 'index ' || relname, pg_get_indexdef(oid)
        FROM tables WHERE EXISTS (SELECT FROM pg_index WHERE indexrelid = tables.oid)
    UNION ALL SELECT 'trigger ' || relname || ' ' || tgname, pg_get_triggerdef(t.oid)
        FROM tables JOIN pg_trigger t ON tgrelid = tables.oid
    UNION ALL SELECT 'function ' || oid::regprocedure::text, concat_ws(' ',
            pg_get_function_result(oid), provolatile, prosecdef, proconfig::text, prosrc)
        FROM pg_proc WHERE pronamespace = $1::text::regnamespace";

async fn open_both(url: &StoreUrl) {
    drop(url.open(IfAbsent::Create, 1).await.unwrap());
    drop(storage::open(url, IfAbsent::Create).await.unwrap());
}

/// Drops comments, line breaks and indentation.
fn shape((name, text): (String, String)) -> (String, String) {
    let lines = text.lines().map(|line| line.split("--").next().unwrap_or_default());
    let words = lines.flat_map(str::split_whitespace);
    (name, words.collect::<Vec<_>>().join(" "))
}

fn differ_in_nothing(
    upgraded: &BTreeMap<String, String>,
    new: &BTreeMap<String, String>,
    least: usize,
) {
    assert!(new.len() > least, "{}", new.len());
    let names = upgraded.keys().chain(new.keys());
    let differs = |name: &&String| upgraded.get(*name) != new.get(*name);
    let found: Vec<_> =
        names.filter(differs).map(|name| (name, upgraded.get(name), new.get(name))).collect();
    assert!(found.is_empty(), "{found:#?}");
}
