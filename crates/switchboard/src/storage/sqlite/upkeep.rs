//! Retention.

use rusqlite::Connection;

use super::super::{Keep, Pruned};
use super::{clock, execute};

/// So many rows of a kind are taken away at a time.
const STEP: i64 = 1_000;

/// What retention takes away.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Messages,
    Keys,
    Letters,
    Addresses,
}

pub(super) const KINDS: [Kind; 4] = [Kind::Messages, Kind::Keys, Kind::Letters, Kind::Addresses];

/// Takes a step of one kind and says how many rows it took.
pub(super) fn prune(db: &Connection, kind: Kind, keep: Keep) -> rusqlite::Result<usize> {
    let now = clock::reached(db)?;
    let bodies = now.saturating_sub(keep.bodies);
    let keys = now.saturating_sub(keep.keys.max(keep.bodies));
    let (sql, before) = match kind {
        Kind::Messages => return messages(db, bodies, now),
        Kind::Keys => (
            "DELETE FROM ingest_dedupe WHERE dedupe_digest IN (SELECT dedupe_digest
                FROM ingest_dedupe WHERE last_seen_at < ?1 ORDER BY last_seen_at LIMIT ?2)",
            keys,
        ),
        Kind::Letters => (
            "DELETE FROM dead_letter WHERE id IN (SELECT id
                FROM dead_letter WHERE resolved_at < ?1 ORDER BY resolved_at LIMIT ?2)",
            bodies,
        ),
        Kind::Addresses => (
            "DELETE FROM auth_failure WHERE address IN (SELECT address
                FROM auth_failure WHERE window_ends_at < ?1 ORDER BY window_ends_at LIMIT ?2)",
            now,
        ),
    };
    execute(db, sql, (before, STEP))
}

/// The oldest are those with the smallest positions: there is no other order to look them up by.
/// They go up to the last one that is old enough before the first that is to be kept. Times beyond
/// the clock of retention are those of a clock that was ahead: such messages go with what follows.
fn messages(db: &Connection, before: i64, reached: i64) -> rusqlite::Result<usize> {
    let sql = "DELETE FROM message_inbox WHERE position <= (SELECT max(position) FROM
            (SELECT position, received_at,
                max(received_at BETWEEN ?1 AND ?2) OVER (ORDER BY position) AS kept FROM
                (SELECT position, received_at FROM message_inbox ORDER BY position LIMIT ?3))
            WHERE received_at < ?1 AND NOT kept)
        RETURNING position, request_id";
    let mut statement = db.prepare_cached(sql)?;
    let gone =
        statement.query_map((before, reached, STEP), |row| Ok((row.get(0)?, row.get(1)?)))?;
    let gone: Vec<(i64, [u8; 16])> = gone.collect::<rusqlite::Result<_>>()?;
    if let Some(newest) = gone.iter().max() {
        let sql = "UPDATE inbox_position SET trimmed = ?1, trimmed_id = ?2 WHERE trimmed < ?1";
        execute(db, sql, *newest)?;
    }
    Ok(gone.len())
}

/// Adds a step to what was taken away.
pub(super) fn add(pruned: &mut Pruned, kind: Kind, taken: usize) {
    let count = match kind {
        Kind::Messages => &mut pruned.messages,
        Kind::Keys => &mut pruned.keys,
        Kind::Letters => &mut pruned.letters,
        Kind::Addresses => &mut pruned.addresses,
    };
    *count += taken as u64;
    pruned.more |= taken as i64 >= STEP;
}

/// Takes the database for writing, for a moment.
pub(super) fn touch(db: &Connection) -> rusqlite::Result<()> {
    execute(db, "UPDATE inbox_position SET last = last", [])?;
    Ok(())
}
