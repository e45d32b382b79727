//! Cheapest ways to store the same rows, without checking for duplicates.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use tenure_wire::ingest::IngestEvent;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

/// Rows of a transaction.
const ROWS: usize = 1_000;

/// A connection to PostgreSQL, in a schema.
pub async fn connect(url: &str, schema: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(&format!("SET search_path = {schema}")).await?;
    Ok(client)
}

const KEY_COLUMNS: &str = "COPY ingest_dedupe (dedupe_digest, request_id, payload_digest, \
    observed_at, first_seen_at, last_seen_at) FROM STDIN BINARY";
const KEY_TYPES: [Type; 6] =
    [Type::BYTEA, Type::UUID, Type::BYTEA, Type::TIMESTAMPTZ, Type::TIMESTAMPTZ, Type::TIMESTAMPTZ];
const MESSAGE_COLUMNS: &str = "COPY message_inbox (position, request_id, received_at, \
    source_channel, source_provider, source_endpoint_identity, source_sender_identity, \
    source_thread_identity, policy_tier, dedupe_key, envelope) FROM STDIN BINARY";
const MESSAGE_TYPES: [Type; 11] = [
    Type::INT8,
    Type::UUID,
    Type::TIMESTAMPTZ,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
];

/// Returns the events per second of `COPY` into both tables with all their indexes, with a thousand
/// rows per transaction.
pub async fn copy(client: &mut Client, events: &[IngestEvent], position: &mut i64) -> Result<f64> {
    let began = Instant::now();
    let now = std::time::SystemTime::now();
    for part in events.chunks(ROWS) {
        let ids: Vec<Uuid> = part.iter().map(|_| Uuid::now_v7()).collect();
        let transaction = client.transaction().await?;
        let writer = BinaryCopyInWriter::new(transaction.copy_in(KEY_COLUMNS).await?, &KEY_TYPES);
        let mut writer = std::pin::pin!(writer);
        for (event, id) in part.iter().zip(&ids) {
            let (key, payload) = (&event.dedupe.digest[..], &event.payload_digest[..]);
            let row: [&(dyn ToSql + Sync); 6] = [&key, id, &payload, &now, &now, &now];
            writer.as_mut().write(&row).await?;
        }
        writer.as_mut().finish().await?;
        let writer = transaction.copy_in(MESSAGE_COLUMNS).await?;
        let mut writer = std::pin::pin!(BinaryCopyInWriter::new(writer, &MESSAGE_TYPES));
        for (event, id) in part.iter().zip(&ids) {
            *position += 1;
            let row: [&(dyn ToSql + Sync); 11] = [
                position,
                id,
                &now,
                &event.channel,
                &event.provider,
                &event.endpoint_identity,
                &event.sender_identity,
                &event.thread_identity,
                &event.policy_tier,
                &event.dedupe.key,
                &event.envelope,
            ];
            writer.as_mut().write(&row).await?;
        }
        writer.as_mut().finish().await?;
        transaction.commit().await?;
    }
    Ok(events.len() as f64 / began.elapsed().as_secs_f64())
}

/// Two inserts in one statement: one transaction per event.
const ONE_EVENT: &str = "WITH key AS (INSERT INTO ingest_dedupe (dedupe_digest, request_id, \
    payload_digest, observed_at, first_seen_at, last_seen_at) \
    VALUES ($1, $2, $3, $4, clock_timestamp(), clock_timestamp()) \
    ON CONFLICT (dedupe_digest) DO NOTHING RETURNING request_id) \
    INSERT INTO message_inbox (position, request_id, received_at, source_channel, \
    source_provider, source_endpoint_identity, source_sender_identity, source_thread_identity, \
    policy_tier, dedupe_key, envelope) \
    SELECT $5, request_id, clock_timestamp(), $6, $7, $8, $9, $10, $11, $12, $13 FROM key";

/// Returns the events per second with one transaction each, on this many connections.
pub async fn one_by_one(
    url: &str,
    schema: &str,
    connections: usize,
    events: Vec<IngestEvent>,
    position: &mut i64,
) -> Result<f64> {
    let count = events.len();
    let mut clients = Vec::new();
    for _ in 0..connections {
        let client = connect(url, schema).await?;
        let statement = client.prepare(ONE_EVENT).await?;
        clients.push((client, statement));
    }
    let mut parts: Vec<Vec<(i64, IngestEvent)>> = vec![Vec::new(); connections];
    for (n, event) in events.into_iter().enumerate() {
        *position += 1;
        parts[n % connections].push((*position, event));
    }
    let began = Instant::now();
    let now = std::time::SystemTime::now();
    let mut working = tokio::task::JoinSet::new();
    for ((client, statement), part) in clients.into_iter().zip(parts) {
        working.spawn(async move {
            for (position, event) in &part {
                let (key, payload) = (&event.dedupe.digest[..], &event.payload_digest[..]);
                let row: [&(dyn ToSql + Sync); 13] = [
                    &key,
                    &Uuid::now_v7(),
                    &payload,
                    &now,
                    position,
                    &event.channel,
                    &event.provider,
                    &event.endpoint_identity,
                    &event.sender_identity,
                    &event.thread_identity,
                    &event.policy_tier,
                    &event.dedupe.key,
                    &event.envelope,
                ];
                client.execute(&statement, &row).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = working.join_next().await {
        ended??;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// Rows of one prepared statement.
const MULTI: usize = 100;

/// Returns the events per second of one prepared multi-row insert into each table, with a thousand
/// rows per transaction and the same durability as ours.
pub fn insert(path: &Path, events: &[IngestEvent], position: &mut i64) -> Result<f64> {
    let mut connection = rusqlite::Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let rows = |columns: usize| {
        let row = format!("({})", vec!["?"; columns].join(","));
        vec![row; MULTI].join(",")
    };
    let keys = format!(
        "INSERT INTO ingest_dedupe (dedupe_digest, request_id, payload_digest, observed_at, \
         first_seen_at, last_seen_at) VALUES {}",
        rows(6)
    );
    let messages = format!(
        "INSERT INTO message_inbox (position, request_id, received_at, source_channel, \
         source_provider, source_endpoint_identity, source_sender_identity, \
         source_thread_identity, policy_tier, dedupe_key, envelope) VALUES {}",
        rows(11)
    );
    let began = Instant::now();
    for transaction_rows in events.chunks(ROWS) {
        let transaction = connection.transaction()?;
        {
            let mut keys = transaction.prepare_cached(&keys)?;
            let mut messages = transaction.prepare_cached(&messages)?;
            for part in transaction_rows.chunks_exact(MULTI) {
                let ids: Vec<Uuid> = part.iter().map(|_| Uuid::now_v7()).collect();
                let mut n = 0;
                let mut bind = |statement: &mut rusqlite::Statement<'_>,
                                value: &dyn rusqlite::ToSql| {
                    n += 1;
                    statement.raw_bind_parameter(n, value)
                };
                for (event, id) in part.iter().zip(&ids) {
                    bind(&mut keys, &event.dedupe.digest)?;
                    bind(&mut keys, &id.as_bytes())?;
                    bind(&mut keys, &event.payload_digest)?;
                    for _ in 0..3 {
                        bind(&mut keys, &event.observed_at_micros)?;
                    }
                }
                keys.raw_execute()?;
                let mut n = 0;
                let mut bind = |statement: &mut rusqlite::Statement<'_>,
                                value: &dyn rusqlite::ToSql| {
                    n += 1;
                    statement.raw_bind_parameter(n, value)
                };
                for (event, id) in part.iter().zip(&ids) {
                    *position += 1;
                    bind(&mut messages, position)?;
                    bind(&mut messages, &id.as_bytes())?;
                    bind(&mut messages, &event.observed_at_micros)?;
                    bind(&mut messages, &event.channel)?;
                    bind(&mut messages, &event.provider)?;
                    bind(&mut messages, &event.endpoint_identity)?;
                    bind(&mut messages, &event.sender_identity)?;
                    bind(&mut messages, &event.thread_identity)?;
                    bind(&mut messages, &event.policy_tier)?;
                    bind(&mut messages, &event.dedupe.key)?;
                    bind(&mut messages, &event.envelope)?;
                }
                messages.raw_execute()?;
            }
        }
        transaction.commit()?;
    }
    Ok(events.len() as f64 / began.elapsed().as_secs_f64())
}
