//! Finds out where an operation can be stopped, and which tables it uses.

use std::collections::BTreeSet;

use anyhow::Result;

use crate::bench::{Bench, Standstill, ended};
use crate::operations::{Kind, TestedOperation};
use crate::server::Side;
use crate::stop::{COMMIT, Stop, release};

/// The locks of a stopped operation: relations by mode, advisory locks, points.
const LOCKS: &str = "SELECT l.locktype, coalesce(c.relname::text, ''), l.mode,
        coalesce(l.objsubid, 0::smallint),
        coalesce((l.classid::bigint << 32) | l.objid::bigint, 0), coalesce(p.name, '')
    FROM pg_locks l
    JOIN pg_stat_activity s ON s.pid = l.pid AND s.application_name = $1
        AND s.datname = current_database()
    LEFT JOIN pg_class c ON c.oid = l.relation AND c.relkind IN ('r', 'p')
        AND c.relnamespace = 'tenure'::regnamespace
    LEFT JOIN iso.point p ON l.objsubid = 2 AND l.classid = 7
        AND hashtext(p.name) = l.objid::bigint::bit(32)::integer
    WHERE l.granted AND l.locktype IN ('relation', 'advisory')";

/// Lock modes by which rows are read, locked and written; stronger ones lock the table.
const READS: &str = "AccessShareLock";
const ROWS: &[&str] = &["RowShareLock", "RowExclusiveLock"];

/// Tables and stops of an operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct FoundStops {
    pub(crate) stops: Vec<Stop>,
    /// Tables that it reads, or writes or locks; `None` if that is not known.
    uses: Option<Uses>,
}

#[derive(Clone, Debug, Default)]
struct Uses {
    reads: BTreeSet<String>,
    locks: BTreeSet<String>,
}

impl FoundStops {
    /// Whether the two use a common table or lock that one of them writes or locks.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        let (Some(a), Some(b)) = (&self.uses, &other.uses) else { return true };
        !a.locks.is_disjoint(&b.locks)
            || !a.locks.is_disjoint(&b.reads)
            || !a.reads.is_disjoint(&b.locks)
    }
}

/// Finds the stops of an operation.
pub(crate) async fn discover(bench: &Bench, operation: &TestedOperation) -> Result<FoundStops> {
    if operation.kind == Kind::Read {
        return Ok(FoundStops::default());
    }
    let everything = everything(bench, operation).await?;
    if !is_stopped(bench, operation, &everything).await? {
        return Ok(FoundStops::default());
    }
    let probed = probe(bench, operation).await?;
    let is_one_transaction = operation.kind != Kind::Steps && probed.is_some();
    let (uses, mut stops, tables) = match probed {
        Some((uses, stops, tables)) if is_one_transaction => (Some(uses), stops, tables),
        _ => (None, Vec::new(), BTreeSet::new()),
    };
    let candidates = everything.into_iter().filter(|stop| match (&uses, stop) {
        (None, _) => true,
        (Some(uses), Stop::Row { table, .. } | Stop::Insertion { table, .. }) => {
            uses.locks.contains(table)
        }
        (Some(_), Stop::Table { table }) => tables.contains(table),
        (Some(_), Stop::Key { .. } | Stop::Point { .. }) => false,
    });
    let candidates: Vec<Stop> = candidates.collect();
    let mut parts = vec![&candidates[..]];
    while let Some(part) = parts.pop() {
        if part.is_empty() || !is_stopped(bench, operation, part).await? {
            continue;
        }
        match part {
            [stop] => stops.push(stop.clone()),
            _ => parts.extend([&part[part.len() / 2..], &part[..part.len() / 2]]),
        }
    }
    Ok(FoundStops { stops, uses })
}

/// Returns everything that might stop an operation.
async fn everything(bench: &Bench, operation: &TestedOperation) -> Result<Vec<Stop>> {
    let tables = bench.tables.iter().filter(|table| operation.part.has(&table.name));
    let tables: Vec<_> = tables.collect();
    let mut stops: Vec<Stop> = Vec::new();
    for table in &tables {
        let name = &table.name;
        let sql = format!("SELECT {} FROM tenure.{name} x ORDER BY 1", table.label());
        for row in bench.watcher.query(&sql, &[]).await? {
            stops.push(Stop::Row { table: name.clone(), label: row.get(0) });
        }
        stops.push(Stop::Table { table: name.clone() });
    }
    bench.run(operation, Side::A).await?;
    for table in tables.iter().filter(|table| !table.is_numbered()) {
        let (name, label) = (&table.name, table.label());
        let sql = format!(
            "SELECT {label}, to_jsonb(x)::text FROM tenure.{name} x WHERE {label} NOT IN \
             (SELECT {label} FROM saved.{name} x) ORDER BY 1"
        );
        for row in bench.watcher.query(&sql, &[]).await? {
            let (table, label, row) = (name.clone(), row.get(0), row.get(1));
            stops.push(Stop::Insertion { table, label, row });
        }
    }
    bench.take(operation.part).await?;
    stops.extend(bench.points.iter().map(|name| Stop::point(name)));
    for name in ["tenure.connector_stats_progress", "tenure.connector_heartbeat_log"] {
        let sql = "SELECT hashtextextended($1, 0)";
        let key = bench.watcher.query_one(sql, &[&name]).await?.get(0);
        stops.push(Stop::Key { key });
    }
    Ok(stops)
}

/// Whether an operation waits while these locks are held.
async fn is_stopped(bench: &Bench, operation: &TestedOperation, stops: &[Stop]) -> Result<bool> {
    bench.blocker.batch_execute("BEGIN").await?;
    for stop in stops {
        stop.lock(&bench.blocker, &bench.tables).await?;
    }
    let running = bench.start(operation, Side::A).await?;
    let still = bench.until_still(&running, operation, Side::A).await?;
    release(&bench.blocker).await?;
    ended(running, operation).await?;
    bench.take(operation.part).await?;
    Ok(still != Standstill::Answered)
}

/// Stops an operation before its first commit and reads which locks it has. Returns `None` if it
/// writes nothing. The last of the three are the tables that it locks as a whole.
async fn probe(
    bench: &Bench,
    operation: &TestedOperation,
) -> Result<Option<(Uses, Vec<Stop>, BTreeSet<String>)>> {
    Stop::point(COMMIT).block(&bench.blocker, &bench.tables).await?;
    let running = bench.start(operation, Side::A).await?;
    let still = bench.until_still(&running, operation, Side::A).await?;
    let rows = bench.watcher.query(LOCKS, &[&Side::A.application()]).await?;
    release(&bench.blocker).await?;
    ended(running, operation).await?;
    bench.take(operation.part).await?;
    if still == Standstill::Answered {
        return Ok(None);
    }
    let (mut uses, mut tables) = (Uses::default(), BTreeSet::new());
    let mut stops = vec![Stop::point(COMMIT)];
    for row in rows {
        let (kind, relation, mode): (&str, String, &str) = (row.get(0), row.get(1), row.get(2));
        let (part, key, point): (i16, i64, String) = (row.get(3), row.get(4), row.get(5));
        match (kind, part) {
            // Nobody ever waits for the key of an effect: it shows its transaction (`effect_key`).
            ("advisory", 1) if operation.kind == Kind::Effect => {}
            ("advisory", 1) => {
                uses.locks.insert(format!("advisory lock {key}"));
                stops.push(Stop::Key { key });
            }
            ("advisory", _) if !point.is_empty() && !point.starts_with(COMMIT) => {
                stops.push(Stop::Point { name: point });
            }
            _ if relation.is_empty() => {}
            _ if mode == READS => drop(uses.reads.insert(relation)),
            _ => {
                if !ROWS.contains(&mode) {
                    tables.insert(relation.clone());
                }
                uses.locks.insert(relation);
            }
        }
    }
    Ok(Some((uses, stops, tables)))
}
