//! Heartbeats.

use rusqlite::{Connection, params};
use tenure_wire::heartbeat::{Counters, Health, Heartbeat};
use uuid::Uuid;

use super::super::{execute, failed, first, token};
use super::read::counters;
use super::told;
use crate::storage::{Beat, Beaten, MOST, MOST_PER_TOKEN, SILENT, STOPPING, Taken, When, is_time};

const SECOND: i64 = 1_000_000;
/// A time of sending counts as at most so long after its arrival.
const AHEAD: i64 = 300 * SECOND;
/// The first gap between two beats counts as at most so long.
const LONGEST_GAP: i64 = 3_600 * SECOND;

/// What the newest beat of an instance left, without what it said of its state.
struct Known {
    uptime_s: i64,
    started_at: i64,
    last_heartbeat_at: i64,
    last_sent_at: i64,
    stopped_at: Option<i64>,
    counters: Counters,
    owed: Counters,
    interval: Option<i64>,
    drift: i64,
    jumps: i64,
}

/// What a beat that is not late makes of its instance.
struct Next<'a> {
    heartbeat: &'a Heartbeat,
    at: i64,
    sent_at: i64,
    started_at: i64,
    interval: Option<i64>,
    drift: i64,
    deltas: Counters,
    reset: bool,
    jumped: bool,
}

/// Takes a beat. `now` is the wall clock, by which tokens end.
pub(super) fn beat(db: &Connection, beat: &Beat, now: i64, when: When) -> rusqlite::Result<Beaten> {
    let at = told(db, when, now)?;
    let token_id = beat.token_id.as_deref();
    if let Some(ended) = token::ended(db, token_id, now)? {
        return Ok(Beaten::TokenEnded(ended));
    }
    let heartbeat = &beat.heartbeat;
    let connector = standing(db, heartbeat)?;
    if connector.is_none() && may_not_register(db, token_id)? {
        return Ok(Beaten::TooMany);
    }
    let known = instance(db, heartbeat, heartbeat.instance_id)?;
    let mut next = next(heartbeat, known.as_ref(), at);
    if when == When::Now && at > now {
        // A time that the clock has not reached says nothing of the gap.
        next.interval = known.as_ref().and_then(|known| known.interval);
    }
    if let Some(known) = known.as_ref().filter(|known| is_late(known, &next)) {
        return late(db, &next, known).map(Beaten::Taken);
    }
    let owed = known.as_ref().map_or_else(Counters::default, |known| known.owed);
    let told = sum(&owed, &next.deltas);
    let unwritten = write_history(db, heartbeat, &told, false, at)?;
    let owed = if unwritten.is_some() { told } else { Counters::default() };
    keep_instance(db, &next, &owed)?;
    if connector.is_none() {
        register(db, heartbeat, token_id, at)?;
    }
    keep_connector(db, &next)?;
    let connector = connector.unwrap_or_default();
    let before = connector.instance_id.filter(|id| *id != heartbeat.instance_id);
    let gives_way = |id| gives_way(db, &next, id, beat.longest_interval);
    let stands = before.map(gives_way).transpose()?.unwrap_or(true);
    if stands {
        stand(db, heartbeat)?;
    }
    Ok(Beaten::Taken(Taken {
        received_at: at,
        registered: connector.is_new,
        revived: connector.is_archived,
        replaced: before.filter(|_| stands),
        late: false,
        reset: next.reset,
        jumped: next.jumped && known.as_ref().is_none_or(|known| known.jumps == 0),
        drift: next.drift,
        drift_before: known.map(|known| known.drift),
        unwritten,
    }))
}

/// What the registry knows before a beat.
struct Standing {
    is_new: bool,
    instance_id: Option<Uuid>,
    is_archived: bool,
}

impl Default for Standing {
    fn default() -> Self {
        Self { is_new: true, instance_id: None, is_archived: false }
    }
}

fn standing(db: &Connection, heartbeat: &Heartbeat) -> rusqlite::Result<Option<Standing>> {
    let sql = "SELECT instance_id, archived_at IS NOT NULL FROM connector_registry
        WHERE connector_type = ?1 AND endpoint_identity = ?2";
    first(db, sql, (&heartbeat.connector_type, &heartbeat.endpoint_identity), |row| {
        let instance_id = row.get::<_, Option<[u8; 16]>>(0)?.map(Uuid::from_bytes);
        Ok(Standing { is_new: false, instance_id, is_archived: row.get(1)? })
    })
}

fn may_not_register(db: &Connection, token_id: Option<&str>) -> rusqlite::Result<bool> {
    let Some(token_id) = token_id else { return Ok(false) };
    let sql = "SELECT count(*) >= ?2 FROM connector_registry WHERE registered_token_id = ?1";
    db.prepare_cached(sql)?.query_row((token_id, MOST_PER_TOKEN), |row| row.get(0))
}

fn instance(
    db: &Connection,
    heartbeat: &Heartbeat,
    instance_id: Uuid,
) -> rusqlite::Result<Option<Known>> {
    let sql = "SELECT uptime_s, started_at, last_heartbeat_at, last_sent_at, stopped_at,
            interval_micros, drift_micros, counter_messages_ingested, counter_messages_failed,
            counter_source_api_calls, counter_checkpoint_saves, counter_dedupe_accepted,
            owed_messages_ingested, owed_messages_failed, owed_source_api_calls,
            owed_checkpoint_saves, owed_dedupe_accepted, jumps
        FROM connector_instances
        WHERE connector_type = ?1 AND endpoint_identity = ?2 AND instance_id = ?3";
    let key = (&heartbeat.connector_type, &heartbeat.endpoint_identity, instance_id.as_bytes());
    first(db, sql, key, |row| {
        Ok(Known {
            uptime_s: row.get(0)?,
            started_at: row.get(1)?,
            last_heartbeat_at: row.get(2)?,
            last_sent_at: row.get(3)?,
            stopped_at: row.get(4)?,
            interval: row.get(5)?,
            drift: row.get(6)?,
            counters: counters(row, 7)?,
            owed: counters(row, 12)?,
            jumps: row.get(17)?,
        })
    })
}

fn next<'a>(heartbeat: &'a Heartbeat, known: Option<&Known>, at: i64) -> Next<'a> {
    let (grown, reset) = deltas(known.map(|known| &known.counters), &heartbeat.counters);
    let deltas = each(&grown, &grown, |grown, _| if is_time(grown, at) { 0 } else { grown });
    // Nothing here started before 1970; an uptime may say so.
    let started_at = at.saturating_sub(heartbeat.uptime_s.saturating_mul(SECOND)).max(0);
    let started_at = match known {
        Some(known) if heartbeat.uptime_s >= known.uptime_s => started_at.min(known.started_at),
        _ => started_at,
    };
    Next {
        heartbeat,
        at,
        sent_at: heartbeat.sent_at_micros.min(at.saturating_add(AHEAD)),
        started_at,
        interval: known.and_then(|known| interval(known.interval, at - known.last_heartbeat_at)),
        drift: at.saturating_sub(heartbeat.sent_at_micros),
        deltas,
        reset,
        jumped: deltas != grown,
    }
}

/// What counters grew by, and whether one of them went down.
fn deltas(before: Option<&Counters>, now: &Counters) -> (Counters, bool) {
    let Some(before) = before else { return (*now, false) };
    let deltas = each(before, now, |before, now| if now < before { now } else { now - before });
    let down = each(before, now, |before, now| i64::from(now < before));
    (deltas, down != Counters::default())
}

fn each(a: &Counters, b: &Counters, of: impl Fn(i64, i64) -> i64) -> Counters {
    Counters {
        messages_ingested: of(a.messages_ingested, b.messages_ingested),
        messages_failed: of(a.messages_failed, b.messages_failed),
        source_api_calls: of(a.source_api_calls, b.source_api_calls),
        checkpoint_saves: of(a.checkpoint_saves, b.checkpoint_saves),
        dedupe_accepted: of(a.dedupe_accepted, b.dedupe_accepted),
    }
}

fn sum(a: &Counters, b: &Counters) -> Counters {
    each(a, b, |a, b| a.saturating_add(b).min(MOST))
}

/// Beats that come twice in a second are the same one again: they say nothing of the interval.
fn interval(before: Option<i64>, gap: i64) -> Option<i64> {
    match before {
        _ if gap < SECOND => before,
        None => Some(gap.min(LONGEST_GAP)),
        Some(before) => Some((4 * before + gap.min(2 * before)) / 5),
    }
}

fn is_late(known: &Known, next: &Next<'_>) -> bool {
    let sent_at = next.heartbeat.sent_at_micros;
    // Of two that are both far ahead, the one that was sent first; the drift tells when.
    let is_before = || sent_at > next.sent_at && known.last_heartbeat_at - known.drift >= sent_at;
    known.uptime_s >= next.heartbeat.uptime_s && (known.last_sent_at >= next.sent_at || is_before())
}

fn late(db: &Connection, next: &Next<'_>, known: &Known) -> rusqlite::Result<Taken> {
    let heartbeat = next.heartbeat;
    let unwritten = write_history(db, heartbeat, &Counters::default(), true, next.at)?;
    let sql = "UPDATE connector_instances SET beats = beats + 1, late = late + 1
        WHERE connector_type = ?1 AND endpoint_identity = ?2 AND instance_id = ?3";
    let id = heartbeat.instance_id.into_bytes();
    execute(db, sql, (&heartbeat.connector_type, &heartbeat.endpoint_identity, id))?;
    Ok(Taken {
        received_at: next.at,
        late: true,
        drift: next.drift,
        drift_before: Some(known.drift),
        unwritten,
        ..Taken::default()
    })
}

/// Whether the instance that stands for the connector is to be replaced by another one.
fn gives_way(
    db: &Connection,
    next: &Next<'_>,
    standing: Uuid,
    longest_interval: i64,
) -> rusqlite::Result<bool> {
    let Some(standing) = instance(db, next.heartbeat, standing)? else { return Ok(true) };
    let interval = standing.interval.unwrap_or_default().min(longest_interval);
    let silent = SILENT.max(interval.saturating_mul(5));
    Ok(next.started_at > standing.started_at
        || next.at - standing.last_heartbeat_at >= silent
        || standing.stopped_at.is_some())
}

/// Appends to the history. When it cannot, everything else goes on, and it is said why.
fn write_history(
    db: &Connection,
    heartbeat: &Heartbeat,
    deltas: &Counters,
    late: bool,
    at: i64,
) -> rusqlite::Result<Option<String>> {
    execute(db, "SAVEPOINT history", [])?;
    let written = append(db, heartbeat, deltas, late, at);
    // Some errors end the transaction: then nothing at all was kept.
    if db.is_autocommit() {
        return written.map(|()| None);
    }
    if written.is_err() {
        execute(db, "ROLLBACK TO history", [])?;
    }
    execute(db, "RELEASE history", [])?;
    Ok(written.err().map(|error| failed(error).to_string()))
}

fn append(
    db: &Connection,
    heartbeat: &Heartbeat,
    deltas: &Counters,
    late: bool,
    at: i64,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO connector_heartbeat_log (connector_type, endpoint_identity,
            instance_id, state, error_message, uptime_s, counter_messages_ingested,
            counter_messages_failed, counter_source_api_calls, counter_checkpoint_saves,
            counter_dedupe_accepted, delta_messages_ingested, delta_messages_failed,
            delta_source_api_calls, delta_checkpoint_saves, delta_dedupe_accepted, late,
            received_at, sent_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,
            ?19)";
    let counters = &heartbeat.counters;
    let row = params![
        heartbeat.connector_type,
        heartbeat.endpoint_identity,
        heartbeat.instance_id.as_bytes(),
        heartbeat.state.as_str(),
        heartbeat.error_message,
        heartbeat.uptime_s,
        counters.messages_ingested,
        counters.messages_failed,
        counters.source_api_calls,
        counters.checkpoint_saves,
        counters.dedupe_accepted,
        deltas.messages_ingested,
        deltas.messages_failed,
        deltas.source_api_calls,
        deltas.checkpoint_saves,
        deltas.dedupe_accepted,
        late,
        at,
        heartbeat.sent_at_micros,
    ];
    execute(db, sql, row)?;
    Ok(())
}

/// A checkpoint that says where: one without a cursor is none.
fn checkpoint(heartbeat: &Heartbeat) -> (Option<&str>, Option<i64>) {
    let told = heartbeat.checkpoint.as_ref();
    match told.and_then(|told| told.cursor.as_deref().map(|cursor| (cursor, told))) {
        Some((cursor, told)) => (Some(cursor), told.updated_at_micros),
        None => (None, None),
    }
}

fn keep_instance(db: &Connection, next: &Next<'_>, owed: &Counters) -> rusqlite::Result<()> {
    let sql = "INSERT INTO connector_instances (connector_type, endpoint_identity, instance_id,
            version, state, error_message, uptime_s, started_at, first_seen_at,
            last_heartbeat_at, last_sent_at, stopped_at, counter_messages_ingested,
            counter_messages_failed, counter_source_api_calls, counter_checkpoint_saves,
            counter_dedupe_accepted, owed_messages_ingested, owed_messages_failed,
            owed_source_api_calls, owed_checkpoint_saves, owed_dedupe_accepted,
            checkpoint_cursor, checkpoint_updated_at, capabilities, interval_micros,
            drift_micros, resets, jumps, beats)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17,
            ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, 1)
        ON CONFLICT (connector_type, endpoint_identity, instance_id) DO UPDATE SET
            version = excluded.version, state = excluded.state,
            error_message = excluded.error_message, uptime_s = excluded.uptime_s,
            started_at = excluded.started_at, last_heartbeat_at = excluded.last_heartbeat_at,
            last_sent_at = excluded.last_sent_at, stopped_at = excluded.stopped_at,
            counter_messages_ingested = excluded.counter_messages_ingested,
            counter_messages_failed = excluded.counter_messages_failed,
            counter_source_api_calls = excluded.counter_source_api_calls,
            counter_checkpoint_saves = excluded.counter_checkpoint_saves,
            counter_dedupe_accepted = excluded.counter_dedupe_accepted,
            owed_messages_ingested = excluded.owed_messages_ingested,
            owed_messages_failed = excluded.owed_messages_failed,
            owed_source_api_calls = excluded.owed_source_api_calls,
            owed_checkpoint_saves = excluded.owed_checkpoint_saves,
            owed_dedupe_accepted = excluded.owed_dedupe_accepted,
            checkpoint_cursor = coalesce(excluded.checkpoint_cursor, checkpoint_cursor),
            checkpoint_updated_at = CASE WHEN excluded.checkpoint_cursor IS NULL
                THEN checkpoint_updated_at ELSE excluded.checkpoint_updated_at END,
            capabilities = coalesce(excluded.capabilities, capabilities),
            interval_micros = excluded.interval_micros, drift_micros = excluded.drift_micros,
            beats = beats + 1, resets = resets + excluded.resets, jumps = jumps + excluded.jumps";
    let Next { heartbeat, at, .. } = next;
    let (cursor, updated_at) = checkpoint(heartbeat);
    let is_stopping =
        heartbeat.state == Health::Degraded && heartbeat.error_message.as_deref() == Some(STOPPING);
    let counters = &heartbeat.counters;
    let row = params![
        heartbeat.connector_type,
        heartbeat.endpoint_identity,
        heartbeat.instance_id.as_bytes(),
        heartbeat.version,
        heartbeat.state.as_str(),
        heartbeat.error_message,
        heartbeat.uptime_s,
        next.started_at,
        at,
        next.sent_at,
        is_stopping.then_some(at),
        counters.messages_ingested,
        counters.messages_failed,
        counters.source_api_calls,
        counters.checkpoint_saves,
        counters.dedupe_accepted,
        owed.messages_ingested,
        owed.messages_failed,
        owed.source_api_calls,
        owed.checkpoint_saves,
        owed.dedupe_accepted,
        cursor,
        updated_at,
        heartbeat.capabilities,
        next.interval,
        next.drift,
        next.reset,
        next.jumped,
    ];
    execute(db, sql, row)?;
    Ok(())
}

fn register(
    db: &Connection,
    heartbeat: &Heartbeat,
    token_id: Option<&str>,
    at: i64,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO connector_registry
            (connector_type, endpoint_identity, first_seen_at, registered_token_id)
        VALUES (?1, ?2, ?3, ?4)";
    execute(db, sql, (&heartbeat.connector_type, &heartbeat.endpoint_identity, at, token_id))?;
    Ok(())
}

/// What the connector gets from a beat of any instance.
fn keep_connector(db: &Connection, next: &Next<'_>) -> rusqlite::Result<()> {
    let sql = "UPDATE connector_registry SET last_heartbeat_at = ?3, archived_at = NULL,
            interval_micros = ?4, drift_micros = ?5,
            counter_messages_ingested = min(counter_messages_ingested + ?6, ?11),
            counter_messages_failed = min(counter_messages_failed + ?7, ?11),
            counter_source_api_calls = min(counter_source_api_calls + ?8, ?11),
            counter_checkpoint_saves = min(counter_checkpoint_saves + ?9, ?11),
            counter_dedupe_accepted = min(counter_dedupe_accepted + ?10, ?11)
        WHERE connector_type = ?1 AND endpoint_identity = ?2";
    let Next { heartbeat, deltas, .. } = next;
    let row = (
        &heartbeat.connector_type,
        &heartbeat.endpoint_identity,
        next.at,
        next.interval,
        next.drift,
        deltas.messages_ingested,
        deltas.messages_failed,
        deltas.source_api_calls,
        deltas.checkpoint_saves,
        deltas.dedupe_accepted,
        MOST,
    );
    execute(db, sql, row)?;
    Ok(())
}

/// What the connector gets from the instance that stands for it.
fn stand(db: &Connection, heartbeat: &Heartbeat) -> rusqlite::Result<()> {
    let sql = "UPDATE connector_registry SET instance_id = ?3, version = ?4, state = ?5,
            error_message = ?6, uptime_s = ?7,
            checkpoint_cursor = coalesce(?8, checkpoint_cursor),
            checkpoint_updated_at =
                CASE WHEN ?8 IS NULL THEN checkpoint_updated_at ELSE ?9 END
        WHERE connector_type = ?1 AND endpoint_identity = ?2";
    let (cursor, updated_at) = checkpoint(heartbeat);
    let row = (
        &heartbeat.connector_type,
        &heartbeat.endpoint_identity,
        heartbeat.instance_id.as_bytes(),
        &heartbeat.version,
        heartbeat.state.as_str(),
        &heartbeat.error_message,
        heartbeat.uptime_s,
        cursor,
        updated_at,
    );
    execute(db, sql, row)?;
    Ok(())
}
