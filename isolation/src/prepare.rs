//! The prepared state, made by the same calls as the operations, and aged by statements.

use anyhow::{Context, Result, ensure};
use tenure_core::store::{Evict, Opened};
use tenure_core::{Document, Epoch, GroupName, InstanceId, Version};
use tenure_switchboard::storage::{
    Attempt, HeartbeatOutcome, IngestFence, LetterResolution, MessageOutcomes, Submission,
    SubmissionOutcome, TimeSource, TokenUsage,
};

use crate::operations::events::{channel, decision, digest, event, fence, id, letter, token};
use crate::operations::lease::{commits, group, hold, reason, reports, session, wants, wish};
use crate::operations::registry::{bot, heartbeat, key};
use crate::server::{Handles, connect};
use crate::{state, stop};

/// The clock of the sessions under test, which the tester sets ahead: the sequence has the seconds,
/// because everyone sees its value at once, whatever their snapshot.
const CLOCK: &str = "
CREATE SCHEMA iso;
CREATE SEQUENCE tenure.iso_ahead MINVALUE 0;
SELECT setval('tenure.iso_ahead', 0);
CREATE FUNCTION iso.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$
BEGIN
    RETURN pg_catalog.clock_timestamp()
        + (SELECT last_value FROM tenure.iso_ahead) * interval '1 second';
END $$;
";

/// Tables of the tester: one for effects, one for planted races.
const TABLES: &str = "
CREATE TABLE tenure.iso_effect (id integer PRIMARY KEY, value integer NOT NULL);
INSERT INTO tenure.iso_effect VALUES (1, 0);
SELECT tenure.guard_table('tenure.iso_effect', 'g');
CREATE TABLE tenure.iso_planted (id integer PRIMARY KEY, value integer NOT NULL);
INSERT INTO tenure.iso_planted VALUES (1, 0), (2, 0);
CREATE FUNCTION tenure.iso_add_careless() RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_value integer;
BEGIN
    SELECT value INTO v_value FROM tenure.iso_planted WHERE id = 1;
    UPDATE tenure.iso_planted SET value = v_value + 1 WHERE id = 1;
    RETURN v_value + 1;
END $$;
CREATE FUNCTION tenure.iso_add_careful() RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_value integer;
BEGIN
    SELECT value INTO v_value FROM tenure.iso_planted WHERE id = 1 FOR UPDATE;
    UPDATE tenure.iso_planted SET value = v_value + 1 WHERE id = 1;
    RETURN v_value + 1;
END $$;
";

const AGE_STORE: &str = "
UPDATE tenure.session SET expires_at = clock_timestamp() - interval '1 hour' WHERE instance = 'c';
UPDATE tenure.session SET expires_at = clock_timestamp() - interval '2 days', ended = true
WHERE instance = 'e';
-- Expires when the clock is set ahead.
UPDATE tenure.session SET expires_at = clock_timestamp() + interval '6 hours' WHERE instance = 'l';
INSERT INTO tenure.spent VALUES
    ('g', '00000000-0000-4000-8000-000000000099', clock_timestamp() - interval '8 days');
";

const AGE_SWITCHBOARD: &str = "
UPDATE tenure.message_inbox SET received_at = clock_timestamp() - interval '10 days'
WHERE position = 1;
UPDATE tenure.ingest_dedupe SET last_seen_at = clock_timestamp() - interval '20 days',
    first_seen_at = clock_timestamp() - interval '20 days'
WHERE request_id = '00000000-0000-0000-0000-000000000001';
UPDATE tenure.dead_letter SET resolved_at = clock_timestamp() - interval '10 days'
WHERE state <> 'pending';
UPDATE tenure.switchboard_clock SET reached = clock_timestamp() - interval '1 second', turn = 0;
INSERT INTO tenure.auth_failure VALUES ('10.0.0.2', 3, clock_timestamp() - interval '1 hour');
UPDATE tenure.connector_instances SET last_heartbeat_at = clock_timestamp() - interval '60 days'
WHERE instance_id = '00000000-0000-0000-0000-00000000002a';
INSERT INTO tenure.connector_stats_hourly (connector_type, endpoint_identity, hour)
VALUES ('telegram_bot', 'bot', date_trunc('hour', clock_timestamp() - interval '60 days', 'UTC'));
INSERT INTO tenure.connector_stats_daily (connector_type, endpoint_identity, day)
VALUES ('telegram_bot', 'bot', (clock_timestamp() - interval '60 days')::date);
INSERT INTO tenure.connector_fanout_daily
VALUES ('telegram_bot', 'bot', 'old', (clock_timestamp() - interval '60 days')::date, 1);
INSERT INTO tenure.inbox_outcome VALUES ('00000000-0000-0000-0000-000000000001', 'old',
    'telegram_bot', 'bot', clock_timestamp() - interval '20 days', NULL, NULL);
UPDATE tenure.switchboard_replica SET seen_at = clock_timestamp() - interval '1 day'
WHERE replica_id = '00000000-0000-0000-0000-000000000020';
-- Otherwise it would lapse after a minute.
UPDATE tenure.switchboard_replica SET seen_at = '2200-01-01'
WHERE replica_id = '00000000-0000-0000-0000-00000000001f';
-- Both are stored with a lower precision than that of a run.
UPDATE tenure.connector_tokens SET last_used_at = clock_timestamp() - interval '2 hours';
UPDATE tenure.ingest_dedupe SET last_seen_at = clock_timestamp() - interval '2 hours'
WHERE request_id = '00000000-0000-0000-0000-000000000002';
INSERT INTO tenure.connector_registry
    (connector_type, endpoint_identity, first_seen_at, last_heartbeat_at)
VALUES ('ahead', 'clock', '2200-01-01', '2200-01-01');
";

/// Prepares the database that all workers copy.
pub(crate) async fn prepare(on: &Handles) -> Result<()> {
    let client = connect(&on.url).await?;
    client.batch_execute(CLOCK).await?;
    client.batch_execute(TABLES).await?;
    leases(on).await?;
    client.batch_execute(AGE_STORE).await?;
    events(on).await?;
    connectors(on).await?;
    client.batch_execute(AGE_SWITCHBOARD).await?;
    client.batch_execute(stop::SCRIPT).await?;
    state::save(&client).await?;
    Ok(client.batch_execute("VACUUM ANALYZE").await?)
}

async fn leases(on: &Handles) -> Result<()> {
    let store = &on.store;
    for instance in ["a", "b", "c", "e", "f", "l"] {
        let wish = wish(instance, 0)?;
        ensure!(store.open_session(&wish).await? == Opened::Open(wish.session()));
    }
    for (instance, ids) in [("a", &["d1", "d2"][..]), ("c", &["d3", "d4"]), ("l", &["d5"])] {
        store.claim(&session(instance)?, &wants(ids)?, &reason()?).await?;
    }
    store.commit(&session("a")?, &commits("a", &[("d1", 0)])?).await?;
    store.commit(&session("c")?, &commits("c", &[("d3", 0), ("d4", 0)])?).await?;
    store.commit(&session("l")?, &commits("l", &[("d5", 0)])?).await?;
    store.report(&session("a")?, &reports("a", &["d1"], 1)?).await?;
    store.report(&session("c")?, &reports("c", &["d3", "d4"], 1)?).await?;
    store.release(&session("c")?, &[hold("c", "d4")?], &reason()?).await?;
    store.evict(&group()?, &InstanceId::new("f")?, Evict::Now, &reason()?).await?;
    let document = Document::new("one")?;
    store.replace_group_document(&GroupName::new("g")?, Version::ZERO, &document).await?;
    Ok(())
}

async fn events(on: &Handles) -> Result<()> {
    let storage = &on.storage;
    let commit = async |name: &str, number, fence: Option<IngestFence>, token: Option<&str>| {
        let items = (!name.is_empty()).then(|| event(name, number)).into_iter().collect();
        let submission = Submission { items, fence, token_id: token.map(str::to_owned) };
        let done = storage.commit(&[submission]).await?;
        let is_stored = matches!(done.first(), Some(SubmissionOutcome::Stored(_)));
        ensure!(is_stored, "{done:?}");
        Ok(())
    };
    for name in ["tok_a", "tok_b"] {
        storage.create_token(&token(name, None)).await?;
    }
    commit("old", 1, None, None).await?;
    commit("two", 2, None, None).await?;
    commit("", 0, Some(fence(7, "i")?), Some("tok_a")).await?;
    commit("", 0, Some(fence(7, "i")?), None).await?;
    storage.post_letter(&letter("pending", 21), None, None).await?;
    storage.post_letter(&letter("ended", 22), None, None).await?;
    let (state, decision) = ("discarded", decision(None));
    let resolution = LetterResolution { id: id(22), state, decision, request_id: None };
    storage.resolve_letter(&resolution).await?.ok().context("no token was given")?;
    let (hash, address) = (Some(digest("tok_x")), "10.0.0.1".to_owned());
    storage.admit(&Attempt { hash, address, limit: 5, window: 1 << 40 }).await?;
    let used =
        TokenUsage { token_id: "tok_a".into(), day: "2026-02-15".into(), ..Default::default() };
    storage.add_usage(&[used]).await?;
    storage.replace_channel(None, Some(&channel(None)), "me").await?;
    storage.announce(id(31), "there").await?;
    storage.announce(id(32), "gone").await?;
    Ok(())
}

async fn connectors(on: &Handles) -> Result<()> {
    let storage = &on.storage;
    let beat = async |of, instance, done| {
        let told = storage.beat(&heartbeat(&of, instance, done, None), TimeSource::Now).await?;
        ensure!(matches!(told, HeartbeatOutcome::Accepted(_)), "{told:?}");
        Ok(())
    };
    beat(bot(), 42, 1).await?;
    beat(bot(), 41, 1).await?;
    beat(key("mail", "box"), 47, 1).await?;
    storage.archive(&key("mail", "box"), true, &decision(None)).await?.ok().context("no token")?;
    storage.roll_up(Epoch::new(2)?, TimeSource::Now).await?;
    beat(bot(), 41, 3).await?;
    let outcomes = MessageOutcomes {
        request_id: id(2),
        connector_type: bot().connector_type,
        endpoint_identity: bot().endpoint_identity,
        acked: vec!["home".to_owned()],
        failed: vec!["health".to_owned()],
        token_id: None,
    };
    storage.report(&outcomes, TimeSource::Now).await?.ok().context("no token was given")?;
    Ok(())
}
