//! Counting what was received, and what was counted.

use rusqlite::Connection;
use tenure_core::Epoch;

use super::super::{all, execute, first};
use super::progress::{Progress, progress};
use super::read::measures;
use crate::storage::{Bucket, Fanned, MAX_SUM, Name, Period, Rolled, Step, Sum};

/// A step counts at most so many beats, and so many acknowledgements.
const STEP: i64 = 10_000;
/// After every hour and day, in microseconds: the end of the year 9999.
const END: i64 = 253_402_300_799 * 1_000_000;

/// Counts a step, in periods that end now.
pub(super) fn roll_up(db: &Connection, epoch: Epoch, now: i64) -> rusqlite::Result<Rolled> {
    let was = progress(db)?;
    if epoch.as_i64() < was.epoch {
        return Ok(Rolled { fenced: true, ..Rolled::default() });
    }
    let last = "SELECT (SELECT coalesce(max(id), 0) FROM connector_heartbeat_log), last_ack
        FROM connector_stats_progress";
    let (last_beat, last_ack): (i64, i64) =
        db.prepare_cached(last)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let beats = (was.counted_beat, last_beat.clamp(was.counted_beat, was.counted_beat + STEP));
    let acks = (was.counted_ack, last_ack.clamp(was.counted_ack, was.counted_ack + STEP));
    let since = Period::ALL.map(|period| period.since(now));
    // Before anything is added: what leaves a period is what was in it.
    move_periods(db, &was, &since)?;
    let rolled = Rolled {
        fenced: false,
        beats: count_beats(db, &Part::step(beats), &since)?,
        outcomes: count_outcomes(db, acks)?,
        behind: if beats.1 < last_beat { age(db, beats.1, now)? } else { 0 },
        more: beats.1 < last_beat || acks.1 < last_ack,
    };
    let sql = "UPDATE connector_stats_progress SET counted_beat = ?1, counted_ack = ?2, epoch = ?3,
            since_24h = ?4, since_7d = ?5, since_30d = ?6";
    execute(db, sql, (beats.1, acks.1, epoch.as_i64(), since[0], since[1], since[2]))?;
    Ok(rolled)
}

/// How old the newest beat up to an id is.
fn age(db: &Connection, id: i64, now: i64) -> rusqlite::Result<i64> {
    let sql = "SELECT received_at FROM connector_heartbeat_log WHERE id <= ?1
        ORDER BY id DESC LIMIT 1";
    let received_at = first(db, sql, [id], |row| row.get::<_, i64>(0))?;
    Ok(received_at.map_or(0, |at| now.saturating_sub(at).max(0)))
}

/// Moves the periods to where they begin now. As a rule a little leaves them; when the clock has
/// stepped, they are added up again.
fn move_periods(db: &Connection, was: &Progress, since: &[i64; 3]) -> rusqlite::Result<()> {
    for (number, period) in Period::ALL.into_iter().enumerate() {
        let (from, upto) = (was.since[number], since[number]);
        let rows = match period.step() {
            Step::Hour => "connector_stats_hourly WHERE hour >= ?2 AND hour < ?3",
            Step::Day => {
                "connector_stats_daily WHERE day >= date(?2 / 1000000, 'unixepoch')
                    AND day < date(?3 / 1000000, 'unixepoch')"
            }
        };
        let rows = format!(
            "SELECT connector_type, endpoint_identity,
                CAST(min(total(messages_ingested), {MAX_SUM}) AS INTEGER) AS messages_ingested,
                CAST(min(total(messages_failed), {MAX_SUM}) AS INTEGER) AS messages_failed
            FROM {rows} GROUP BY connector_type, endpoint_identity"
        );
        if upto > from && upto < from + period.steps() * period.step().micros() {
            let sql = format!(
                "UPDATE connector_stats_window AS it SET
                    messages_ingested = max(it.messages_ingested - gone.messages_ingested, 0),
                    messages_failed = max(it.messages_failed - gone.messages_failed, 0)
                FROM ({rows}) AS gone
                WHERE it.connector_type = gone.connector_type
                    AND it.endpoint_identity = gone.endpoint_identity AND it.period = ?1"
            );
            execute(db, &sql, (period.as_str(), from, upto))?;
        } else if upto != from {
            let sql = "DELETE FROM connector_stats_window WHERE period = ?1";
            execute(db, sql, [period.as_str()])?;
            let sql = format!(
                "INSERT INTO connector_stats_window (connector_type, endpoint_identity, period,
                    messages_ingested, messages_failed)
                SELECT connector_type, endpoint_identity, ?1, messages_ingested, messages_failed
                FROM ({rows})"
            );
            execute(db, &sql, (period.as_str(), upto, END))?;
        }
    }
    Ok(())
}

/// The columns of hours and days, as far as they are alike, and how they add up. A sum of integers
/// fails when it is too large; a total is exact as far as sums may grow.
fn measured(of: &str) -> (String, String, String) {
    let sums = ["messages_ingested", "messages_failed", "source_api_calls", "dedupe_accepted"];
    let states = ["healthy", "degraded", "error"];
    let states = states.map(|state| (format!("{state}_count"), format!("sum(state = '{state}')")));
    let mut columns: Vec<(String, String)> = sums.map(|it| (it.to_owned(), total(it))).into();
    columns.push(("heartbeat_count".to_owned(), "count(*)".to_owned()));
    columns.extend(states);
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    let values: Vec<&str> = columns.iter().map(|(_, value)| value.as_str()).collect();
    let add = |name: &str| format!("{name} = min({of}.{name} + excluded.{name}, {MAX_SUM})");
    let added: Vec<String> = names.iter().map(|name| add(name)).collect();
    (names.join(", "), values.join(", "), added.join(", "))
}

/// The sum of a delta, without what jumped by the size of a Unix time, as `is_time` has it.
fn total(of: &str) -> String {
    let (grown, now) = (format!("delta_{of}"), "(received_at / 1000000)");
    let times = format!("(({grown} + {now} / 2) / {now})");
    format!(
        "CAST(min(total(CASE WHEN {grown} >= 1000000000 AND {now} >= 1000000000
            AND {times} BETWEEN 1 AND 16
            AND abs({grown} - {times} * {now}) <= {times} * 31622400
            THEN 0 ELSE {grown} END), {MAX_SUM}) AS INTEGER)"
    )
}

/// Beats that are counted together: those with numbers after one and up to another, or those of a
/// connector from a time on.
pub(super) struct Part<'a> {
    pub(super) after: i64,
    pub(super) upto: i64,
    pub(super) name: Option<&'a Name>,
    pub(super) from: i64,
}

impl<'a> Part<'a> {
    fn step((after, upto): (i64, i64)) -> Self {
        Self { after, upto, name: None, from: i64::MIN }
    }

    /// A late beat counts nowhere.
    fn rows(&self) -> &'static str {
        match self.name {
            None => "id > ?1 AND id <= ?2 AND ?3 IS ?4 AND received_at >= ?5 AND NOT late",
            Some(_) => {
                "connector_type = ?3 AND endpoint_identity = ?4 AND received_at >= ?5
                    AND +id > ?1 AND +id <= ?2 AND NOT late"
            }
        }
    }

    fn values(&self) -> (i64, i64, Option<&'a str>, Option<&'a str>, i64) {
        let part = |of: fn(&'a Name) -> &'a str| self.name.map(of);
        let of = part(|name| &name.connector_type);
        (self.after, self.upto, of, part(|name| &name.endpoint_identity), self.from)
    }
}

pub(super) fn count_beats(
    db: &Connection,
    part: &Part<'_>,
    since: &[i64; 3],
) -> rusqlite::Result<i64> {
    let (rows, of) = (part.rows(), part.values());
    let sql = format!("SELECT count(*) FROM connector_heartbeat_log WHERE {rows}");
    let beats: i64 = db.prepare_cached(&sql)?.query_row(of, |row| row.get(0))?;
    if beats == 0 {
        return Ok(0);
    }
    let (names, values, added) = measured("connector_stats_hourly");
    let hours = format!(
        "INSERT INTO connector_stats_hourly (connector_type, endpoint_identity, hour, {names})
        SELECT connector_type, endpoint_identity, received_at / 3600000000 * 3600000000, {values}
        FROM connector_heartbeat_log WHERE {rows} GROUP BY 1, 2, 3
        ON CONFLICT (connector_type, endpoint_identity, hour) DO UPDATE SET {added}"
    );
    execute(db, &hours, of)?;
    let (names, values, added) = measured("connector_stats_daily");
    let days = format!(
        "INSERT INTO connector_stats_daily
            (connector_type, endpoint_identity, day, {names}, uptime_pct)
        SELECT connector_type, endpoint_identity, date(received_at / 1000000, 'unixepoch'),
            {values}, round(100.0 * sum(state = 'healthy') / count(*), 2)
        FROM connector_heartbeat_log WHERE {rows} GROUP BY 1, 2, 3
        ON CONFLICT (connector_type, endpoint_identity, day) DO UPDATE SET {added}, uptime_pct =
            round(100.0 * (connector_stats_daily.healthy_count + excluded.healthy_count)
                / (connector_stats_daily.heartbeat_count + excluded.heartbeat_count), 2)"
    );
    execute(db, &days, of)?;
    for (period, since) in Period::ALL.into_iter().zip(since) {
        let sql = format!(
            "INSERT INTO connector_stats_window
                (connector_type, endpoint_identity, period, messages_ingested, messages_failed)
            SELECT connector_type, endpoint_identity, ?6, {}, {}
            FROM connector_heartbeat_log WHERE {rows} AND received_at >= ?7 GROUP BY 1, 2
            ON CONFLICT (connector_type, endpoint_identity, period) DO UPDATE SET
                messages_ingested = min(connector_stats_window.messages_ingested
                    + excluded.messages_ingested, {MAX_SUM}),
                messages_failed = min(connector_stats_window.messages_failed
                    + excluded.messages_failed, {MAX_SUM})",
            total("messages_ingested"),
            total("messages_failed"),
        );
        execute(db, &sql, (of.0, of.1, of.2, of.3, of.4, period.as_str(), since))?;
    }
    Ok(beats)
}

fn count_outcomes(db: &Connection, part: (i64, i64)) -> rusqlite::Result<i64> {
    let sql = "SELECT count(*) FROM inbox_outcome WHERE arrival > ?1 AND arrival <= ?2";
    let outcomes: i64 = db.prepare_cached(sql)?.query_row(part, |row| row.get(0))?;
    let sql = "INSERT INTO connector_fanout_daily
            (connector_type, endpoint_identity, target_butler, day, message_count)
        SELECT connector_type, endpoint_identity, target,
            date(acked_at / 1000000, 'unixepoch'), count(*)
        FROM inbox_outcome WHERE arrival > ?1 AND arrival <= ?2 GROUP BY 1, 2, 3, 4
        ON CONFLICT (connector_type, endpoint_identity, target_butler, day) DO UPDATE SET
            message_count = connector_fanout_daily.message_count + excluded.message_count";
    if outcomes > 0 {
        execute(db, sql, part)?;
    }
    Ok(outcomes)
}

pub(super) fn series(
    db: &Connection,
    name: &Name,
    since: i64,
    step: Step,
) -> rusqlite::Result<Vec<Bucket>> {
    let (start, from) = match step {
        Step::Hour => ("hour", "connector_stats_hourly WHERE hour >= ?3"),
        Step::Day => (
            "unixepoch(day) * 1000000",
            "connector_stats_daily WHERE day >= date(?3 / 1000000, 'unixepoch')",
        ),
    };
    let sql = format!(
        "SELECT {start}, messages_ingested, messages_failed, source_api_calls, dedupe_accepted,
            heartbeat_count, healthy_count, degraded_count, error_count
        FROM {from} AND connector_type = ?1 AND endpoint_identity = ?2 ORDER BY 1"
    );
    all(db, &sql, (&name.connector_type, &name.endpoint_identity, since), |row| {
        Ok(Bucket { start: row.get(0)?, measures: measures(row, 1)? })
    })
}

pub(super) fn sums(db: &Connection, period: Period) -> rusqlite::Result<Vec<Sum>> {
    let sql = "SELECT r.connector_type, r.endpoint_identity, r.last_heartbeat_at,
            r.interval_micros, coalesce(w.messages_ingested, 0), coalesce(w.messages_failed, 0)
        FROM connector_registry r LEFT JOIN connector_stats_window w
            ON w.connector_type = r.connector_type AND w.endpoint_identity = r.endpoint_identity
                AND w.period = ?1
        WHERE r.archived_at IS NULL ORDER BY r.connector_type, r.endpoint_identity";
    all(db, sql, [period.as_str()], |row| {
        Ok(Sum {
            connector_type: row.get(0)?,
            endpoint_identity: row.get(1)?,
            last_heartbeat_at: row.get(2)?,
            interval: row.get(3)?,
            messages_ingested: row.get(4)?,
            messages_failed: row.get(5)?,
        })
    })
}

pub(super) fn fanout(db: &Connection, since_day: &str) -> rusqlite::Result<Vec<Fanned>> {
    let sql = "SELECT connector_type, endpoint_identity, target_butler, sum(message_count)
        FROM connector_fanout_daily INDEXED BY connector_fanout_daily_age WHERE day >= ?1
        GROUP BY connector_type, endpoint_identity, target_butler
        ORDER BY connector_type, endpoint_identity, target_butler";
    all(db, sql, [since_day], |row| {
        Ok(Fanned {
            connector_type: row.get(0)?,
            endpoint_identity: row.get(1)?,
            target: row.get(2)?,
            messages: row.get(3)?,
        })
    })
}
