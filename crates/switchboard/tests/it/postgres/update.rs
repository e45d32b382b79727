//! Upgrades of stores of earlier versions.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tenure_store::IfAbsent;
use tenure_switchboard::storage::{InboxQuery, SeriesStep, Storage, TimeSource, postgres};
use tenure_wire::ingest::InboxCursor;
use testkit::{TEST_POSTGRES, service};
use tokio_postgres::Client;

use super::client;
use crate::storage::kit::{commit_one, event, fence, held, inbox, is_fenced, read_page, sent};
use crate::storage::outcome::told_of;
use crate::storage::told::{DAY, MIDNIGHT, bot, count, hear, series};

/// A fence stored before fences had sources still rejects a stale holder.
#[tokio::test(flavor = "multi_thread")]
async fn an_update_keeps_every_fence() {
    let Some(url) = service(TEST_POSTGRES) else { return };
    let schema = format!("switchboard_old_{}", std::process::id());
    let script = postgres::script(&schema).unwrap();
    let before = script.split("-- 0006 fences").next().unwrap();
    let seen = format!(
        "INSERT INTO {schema}.ingest_fence VALUES ('telegram/bot', 7, 'new', clock_timestamp())"
    );
    let client = client(&url).await;
    client.batch_execute(&format!("{before} {seen}; COMMIT")).await.unwrap();
    let storage = postgres::open(&url, &schema, IfAbsent::Refuse).await.unwrap();
    let storage: Arc<dyn Storage> = Arc::new(storage);
    let stale = held(fence("bot", 6, "old"), &["a"]);
    is_fenced(&commit_one(&storage, stale).await, 7, "new");
    client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.unwrap();
}

/// A non-empty store of an earlier version.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_store_is_brought_up_to_date() {
    let Some(url) = service(TEST_POSTGRES) else { return };
    let schema = format!("older_{}", std::process::id());
    let client = client(&url).await;
    let script = postgres::script(&schema).unwrap();
    let (older, _) = script.split_once("-- 0003").unwrap();
    client.batch_execute(&format!("{older}COMMIT")).await.unwrap();
    let kept = format!(
        "INSERT INTO {schema}.message_inbox (position, request_id, received_at, source_channel,
            source_provider, source_endpoint_identity, source_sender_identity, policy_tier,
            dedupe_key, envelope)
        VALUES (1, gen_random_uuid(), now(), 'telegram', 'telegram', 'bot', 'user', 'default',
            'key', '{{}}');
        UPDATE {schema}.inbox_position SET last = 1;
        UPDATE {schema}.connector_stats_progress SET counted = '2026-02-15T10:00:00Z';
        INSERT INTO {schema}.connector_registry (connector_type, endpoint_identity, first_seen_at)
        VALUES ('telegram_bot', 'bot', '2026-02-15T10:00:00Z');
        INSERT INTO {schema}.connector_heartbeat_log (connector_type, endpoint_identity,
            instance_id, state, uptime_s, counter_messages_ingested, counter_messages_failed,
            counter_source_api_calls, counter_checkpoint_saves, counter_dedupe_accepted,
            delta_messages_ingested, delta_messages_failed, delta_source_api_calls,
            delta_checkpoint_saves, delta_dedupe_accepted, late, received_at, sent_at)
        SELECT 'telegram_bot', 'bot', gen_random_uuid(), 'healthy', 1, 0, 0, 0, 0, 0, n, 0, 0, 0,
            0, false, time, time
        FROM (VALUES (10, timestamptz '2026-02-15T10:00:00Z'), (7, '2026-02-15T09:59:59Z'))
            AS told(n, time)"
    );
    client.batch_execute(&kept).await.unwrap();
    let open = || async { postgres::open(&url, &schema, IfAbsent::Refuse).await.unwrap() };
    let (one, other) = tokio::join!(open(), open());
    let (one, other): (Arc<dyn Storage>, Arc<dyn Storage>) = (Arc::new(one), Arc::new(other));
    let message = inbox(&other).await.remove(0);
    // Its cursor already has its final tag.
    let query = InboxQuery { limit: 9, ..InboxQuery::default() };
    let next = read_page(&one, &query).await.next_after;
    assert_eq!(next, InboxCursor::new(1, Some(message.request_id)));
    let outcomes = told_of(message.request_id, &["health"]);
    assert_eq!(one.report(&outcomes, TimeSource::Now).await.unwrap().unwrap().changed, 1);
    commit_one(&one, sent([event("a")])).await;
    assert_eq!(inbox(&other).await.len(), 2);
    hear(&one, 1, MIDNIGHT, 60, 1).await;
    // Only heartbeats that were not counted before are counted.
    let rolled = count(&other, 1, MIDNIGHT + DAY).await;
    assert_eq!((rolled.beats, rolled.outcomes), (2, 1));
    assert_eq!(series(&other, &bot(), SeriesStep::Day).await[&MIDNIGHT].messages_ingested, 11);
    client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.unwrap();
}

/// Inserts a row into every table: texts are the name of their column, numbers its position, and
/// all times are equal.
const FILL: &str = "DO $$ DECLARE v_table text; v_names text; v_values text; BEGIN
    FOR v_table IN SELECT table_name FROM information_schema.tables
        WHERE table_schema = 'SCHEMA' AND table_name NOT IN ('switchboard_migration',
            'inbox_position', 'connector_stats_progress', 'connector_heartbeat_log_default')
    LOOP
        SELECT string_agg(quote_ident(column_name), ', '), string_agg(CASE data_type
            WHEN 'text' THEN quote_literal(column_name)
            WHEN 'bigint' THEN ordinal_position::text
            WHEN 'numeric' THEN ordinal_position::text
            WHEN 'boolean' THEN 'false'
            WHEN 'bytea' THEN quote_literal('\\x' || md5(column_name))
            WHEN 'uuid' THEN quote_literal(md5('uuid'))
            ELSE quote_literal('2026-02-15T10:30:00Z') END, ', ')
        INTO v_names, v_values FROM information_schema.columns
        WHERE table_schema = 'SCHEMA' AND table_name = v_table
            AND is_generated = 'NEVER' AND is_identity = 'NO';
        EXECUTE format('INSERT INTO SCHEMA.%I (%s) VALUES (%s)', v_table, v_names, v_values);
    END LOOP;
    UPDATE SCHEMA.inbox_position SET last = 1;
    UPDATE SCHEMA.connector_stats_progress SET epoch = 7, counted = '2026-02-15T10:00:00Z',
        ceiling = '2026-02-15T10:00:00Z', since_24h = '2026-02-14T11:00:00Z';
END $$";

/// Returns the row of every table that has one.
async fn rows(client: &Client, schema: &str) -> BTreeMap<String, Map<String, Value>> {
    let tables = "SELECT c.relname::text FROM pg_class c WHERE c.relkind IN ('r', 'p')
        AND c.relnamespace = $1::text::regnamespace AND NOT c.relispartition
        AND c.relname NOT IN ('switchboard_migration', 'ingest_channel')";
    let mut found = BTreeMap::new();
    for table in client.query(tables, &[&schema]).await.unwrap() {
        let table: String = table.get(0);
        let sql = format!("SELECT to_jsonb(t)::text FROM {schema}.{table} t");
        let row: String = client.query_one(&sql, &[]).await.unwrap().get(0);
        found.insert(table, serde_json::from_str(&row).unwrap());
    }
    found
}

/// No data of a store of the second migration is lost or changed; new columns have the right
/// values.
#[tokio::test(flavor = "multi_thread")]
async fn an_update_keeps_every_row() {
    let Some(url) = service(TEST_POSTGRES) else { return };
    let schema = format!("switchboard_rows_{}", std::process::id());
    let client = client(&url).await;
    client.batch_execute("SET TIME ZONE 'UTC'").await.unwrap();
    let script = postgres::script(&schema).unwrap();
    let (older, _) = script.split_once("-- 0003").unwrap();
    client.batch_execute(&format!("{older}COMMIT")).await.unwrap();
    client.batch_execute(&FILL.replace("SCHEMA", &schema)).await.unwrap();
    let before = rows(&client, &schema).await;
    assert_eq!(before.len(), 19, "{:?}", before.keys());
    postgres::open(&url, &schema, IfAbsent::Refuse).await.unwrap();
    let after = rows(&client, &schema).await;
    let mut new = BTreeMap::new();
    for (table, row) in &after {
        let known = before.get(table).cloned().unwrap_or_default();
        for (column, value) in &known {
            let gone = table == "connector_stats_progress"
                && ["counted", "ceiling"].contains(&column.as_str());
            // Heartbeats that are not counted yet get new ids.
            let changed = gone || (table == "connector_heartbeat_log" && column == "id");
            assert!(changed || row.get(column) == Some(value), "{table}.{column}: {row:?}");
        }
        let added = row.iter().filter(|it| !known.contains_key(it.0));
        new.extend(added.map(|(column, value)| (format!("{table}.{column}"), value.clone())));
    }
    let mut take = |column: &str| new.remove(column).unwrap_or_else(|| panic!("no {column}"));
    let counted = take("connector_stats_progress.counted_id").as_i64().unwrap();
    assert!(after["connector_heartbeat_log"]["id"].as_i64().unwrap() > counted);
    assert!(take("inbox_outcome.arrival").as_i64().unwrap() > counted);
    // The identity of the server.
    take("inbox_position.lineage");
    let expected = json!({
        "connector_heartbeat_log.more": null,
        "connector_instances.jumps": 0,
        "connector_instances.more": null,
        "connector_registry.more": null,
        "connector_stats_progress.beats_since": "2026-02-16T00:00:00+00:00",
        "connector_stats_progress.bound_id": 0,
        "inbox_position.floor": 0,
        "inbox_position.last_id": before["message_inbox"]["request_id"],
        "inbox_position.trimmed_id": null,
        "ingest_fence.source": "\\x",
        "ingest_fence.source_channel": "",
        "ingest_fence.source_endpoint_identity": "",
        "ingest_fence.source_provider": "",
        "switchboard_clock.only_row": true,
        "switchboard_clock.reached": "2026-02-15T10:30:00+00:00",
        "switchboard_clock.turn": 0,
    });
    assert_eq!(json!(new), expected);
    client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.unwrap();
}
