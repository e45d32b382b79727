//! A worker's database: runs operations alone, in order, and one while the other is stopped.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Statement};

use crate::level::{ConnectionPath, IsolationLevel};
use crate::operations::{Answer, Kind, Part, TestedOperation};
use crate::server::{Handles, PreparedServer, Side};
use crate::state::{self, RowSnapshot, StateReader, StateTable};
use crate::stop::{Stop, release};
use crate::view::{CLOCK_LEAD_SECONDS, SECOND, View, view};

/// Far above what a schedule needs; only turns a hang into an error.
const HANG_LIMIT: Duration = Duration::from_secs(60);

/// The server is asked this often who waits: asking more often slows the operations down.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

const HOUR: i64 = 3_600 * SECOND;
/// Nothing is begun so shortly before the end of an hour.
const HOUR_MARGIN: i64 = 10 * SECOND;

/// Whether a side waits for a lock of another transaction, and whether of the other side.
const WAITS: &str = "SELECT count(*) > 0, coalesce(bool_or(pg_blocking_pids(s.pid) && ARRAY(
        SELECT o.pid FROM pg_stat_activity o
        WHERE o.datname = current_database() AND o.application_name = $2)), false)
    FROM pg_stat_activity s
    WHERE s.datname = current_database() AND s.application_name = $1
        AND s.wait_event_type = 'Lock'
        AND s.wait_event IN ('tuple', 'transactionid', 'advisory', 'relation')";

/// Answers of two operations, and the state after them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PairOutcome {
    pub(crate) a: Answer,
    pub(crate) b: Answer,
    pub(crate) state: View,
}

/// Answer of one operation, and the state after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alone {
    pub(crate) answer: Answer,
    pub(crate) state: View,
}

/// State of an operation that goes on no further by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standstill {
    Answered,
    /// It waits for a lock of the blocker.
    Waits,
    /// It waits for a lock of the other side.
    WaitsForOther,
}

/// Outcome of a schedule, and how far B came while A was stopped.
#[derive(Clone, Debug)]
pub(crate) struct Played {
    pub(crate) outcome: PairOutcome,
    pub(crate) b: Standstill,
}

/// One part of the schema: its tables and its prepared state.
struct PartState {
    part: Part,
    reader: StateReader,
    prepared: RowSnapshot,
}

/// A database with the pools of both sides at one level.
pub(crate) struct Bench {
    pub(crate) level: IsolationLevel,
    pub(crate) tables: Vec<StateTable>,
    pub(crate) points: Vec<String>,
    /// Of the tester: reads states and who waits.
    pub(crate) watcher: Client,
    /// Holds the locks that stop side A.
    pub(crate) blocker: Client,
    waits: Statement,
    parts: Vec<PartState>,
    /// The hour in which the next operation runs.
    hour: AtomicI64,
    a: Handles,
    b: Handles,
}

impl Bench {
    /// Opens the pools at a level; the database exists and is in its prepared state.
    pub(crate) async fn open(
        server: &PreparedServer,
        database: &str,
        level: IsolationLevel,
    ) -> Result<Self> {
        let watcher = server.connect(database).await?;
        let blocker = server.connect(database).await?;
        let a = server.open(database, level, Side::A).await?;
        let b = server.open(database, level, Side::B).await?;
        if level.path == ConnectionPath::Raw {
            server.make_raw(database, level)?;
            reconnect(&a).await?;
            reconnect(&b).await?;
        }
        let tables = StateTable::all(&watcher).await?;
        let names = watcher.query("SELECT name FROM iso.point ORDER BY name", &[]).await?;
        let points: Vec<String> = names.iter().map(|row| row.get(0)).collect();
        let waits = watcher.prepare(WAITS).await?;
        // Opening changes little, such as the lineage of the inbox; everything is put back.
        state::reset(&watcher, &tables.iter().collect::<Vec<_>>()).await?;
        let mut parts = Vec::new();
        for part in [Part::Store, Part::Switchboard, Part::Planted] {
            let of: Vec<&StateTable> =
                tables.iter().filter(|table| part.has(&table.name)).collect();
            let reader = StateReader::new(&watcher, &of).await?;
            let prepared = reader.read(&watcher).await?;
            parts.push(PartState { part, reader, prepared });
        }
        let hour = AtomicI64::new(0);
        let this = Self { level, tables, points, watcher, blocker, waits, parts, hour, a, b };
        this.take(Part::Planted).await?;
        Ok(this)
    }

    /// Returns the hour in which the next operation runs: results of different hours differ.
    pub(crate) fn hour(&self) -> i64 {
        self.hour.load(Ordering::Relaxed)
    }

    fn part(&self, part: Part) -> Result<&PartState> {
        self.parts.iter().find(|it| it.part == part).context("no such part")
    }

    /// Reads the state, and puts the prepared one back. Shortly before the end of an hour it waits.
    pub(crate) async fn take(&self, part: Part) -> Result<View> {
        let PartState { reader, prepared, .. } = self.part(part)?;
        let state = reader.read(&self.watcher).await?;
        let is_changed =
            |table: &&StateTable| state.rows.get(&table.name) != prepared.rows.get(&table.name);
        let of = self.tables.iter().filter(|table| part.has(&table.name));
        let changed: Vec<&StateTable> = of.filter(is_changed).collect();
        state::reset(&self.watcher, &changed).await?;
        let left = HOUR - state.now % HOUR;
        if left < HOUR_MARGIN {
            tokio::time::sleep(Duration::from_micros(left.unsigned_abs())).await;
        }
        self.hour.store((state.now + HOUR_MARGIN) / HOUR, Ordering::Relaxed);
        Ok(view(&state, prepared))
    }

    /// Returns the prepared state.
    pub(crate) fn prepared(&self, part: Part) -> Result<View> {
        let PartState { prepared, .. } = self.part(part)?;
        Ok(view(prepared, prepared))
    }

    /// Sets the clock ahead until the state is taken: the lease of session `l` expires.
    async fn lapse(&self) -> Result<()> {
        let sql = format!("SELECT setval('tenure.iso_ahead', {CLOCK_LEAD_SECONDS})");
        Ok(self.watcher.batch_execute(&sql).await?)
    }

    pub(crate) async fn start(
        &self,
        operation: &TestedOperation,
        side: Side,
    ) -> Result<JoinHandle<Answer>> {
        if operation.kind == Kind::Late {
            self.lapse().await?;
        }
        let on = match side {
            Side::A => self.a.clone(),
            Side::B => self.b.clone(),
        };
        Ok(tokio::spawn((operation.run)(on)))
    }

    /// Runs an operation alone and leaves its state.
    pub(crate) async fn run(&self, operation: &TestedOperation, side: Side) -> Result<Answer> {
        ended(self.start(operation, side).await?, operation).await
    }

    /// Runs an operation alone; with the clock ahead if `is_late`.
    pub(crate) async fn alone(
        &self,
        operation: &TestedOperation,
        side: Side,
        is_late: bool,
    ) -> Result<Alone> {
        if is_late {
            self.lapse().await?;
        }
        let answer = self.run(operation, side).await?;
        Ok(Alone { answer, state: self.take(operation.part).await? })
    }

    /// Runs A and then B, or the reverse; both with the clock ahead if `is_late`.
    pub(crate) async fn serial(
        &self,
        a: &TestedOperation,
        b: &TestedOperation,
        is_a_first: bool,
        is_late: bool,
    ) -> Result<PairOutcome> {
        if is_late {
            self.lapse().await?;
        }
        let (a_said, b_said);
        if is_a_first {
            a_said = self.run(a, Side::A).await?;
            b_said = self.run(b, Side::B).await?;
        } else {
            b_said = self.run(b, Side::B).await?;
            a_said = self.run(a, Side::A).await?;
        }
        Ok(PairOutcome { a: a_said, b: b_said, state: self.take(a.part).await? })
    }

    /// Runs B while A is stopped. Returns `None` if A is not stopped there.
    pub(crate) async fn play(
        &self,
        a: &TestedOperation,
        b: &TestedOperation,
        at: &Stop,
    ) -> Result<Option<Played>> {
        at.block(&self.blocker, &self.tables).await?;
        let a_runs = self.start(a, Side::A).await?;
        if self.until_still(&a_runs, a, Side::A).await? == Standstill::Answered {
            release(&self.blocker).await?;
            ended(a_runs, a).await?;
            self.take(a.part).await?;
            return Ok(None);
        }
        let b_runs = self.start(b, Side::B).await?;
        let b_still = self.until_still(&b_runs, b, Side::B).await?;
        release(&self.blocker).await?;
        let (a_said, b_said) = (ended(a_runs, a).await?, ended(b_runs, b).await?);
        let outcome = PairOutcome { a: a_said, b: b_said, state: self.take(a.part).await? };
        Ok(Some(Played { outcome, b: b_still }))
    }

    /// Waits until a side waits for a lock or was answered.
    pub(crate) async fn until_still<T>(
        &self,
        running: &JoinHandle<T>,
        operation: &TestedOperation,
        side: Side,
    ) -> Result<Standstill> {
        let (of, other) = (side.application(), side.other().application());
        let mut tick = tokio::time::interval(POLL_INTERVAL);
        let look = async {
            while !running.is_finished() {
                tick.tick().await;
                let row = self.watcher.query_one(&self.waits, &[&of, &other]).await?;
                match (row.get(0), row.get(1)) {
                    (false, _) => {}
                    (true, false) => return Ok(Standstill::Waits),
                    (true, true) => return Ok(Standstill::WaitsForOther),
                }
            }
            Ok::<_, anyhow::Error>(Standstill::Answered)
        };
        let name = operation.name;
        tokio::time::timeout(HANG_LIMIT, look).await.with_context(|| format!("{name} hangs"))?
    }
}

/// Uses connections that were ended until they have been replaced.
async fn reconnect(on: &Handles) -> Result<()> {
    let renew =
        async { while on.store.retention().await.is_err() || on.storage.ping().await.is_err() {} };
    tokio::time::timeout(HANG_LIMIT, renew).await.context("the pools do not connect again")
}

/// Waits for the answer of an operation.
pub(crate) async fn ended(
    running: JoinHandle<Answer>,
    operation: &TestedOperation,
) -> Result<Answer> {
    match tokio::time::timeout(HANG_LIMIT, running).await {
        Ok(answer) => Ok(answer?),
        Err(_) => bail!("{} hangs", operation.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_lease_has_expired_for_what_begins_late() {
        let server = PreparedServer::start().await.unwrap();
        let all = operations::all();
        let keep = all.iter().find(|it| it.name == "keep-lapsing").unwrap();
        for (number, level) in IsolationLevel::ALL.into_iter().enumerate() {
            let database = format!("iso_{number}");
            server.create(&database).unwrap();
            let bench = Bench::open(&server, &database, level).await.unwrap();
            let late = bench.alone(keep, Side::B, true).await.unwrap().answer;
            assert_eq!(late, Answer::Done("Ended".to_owned()), "{level}");
            let in_time = bench.alone(keep, Side::B, false).await.unwrap().answer;
            assert!(format!("{in_time:?}").contains("Kept"), "{level}: {in_time:?}");
        }
    }
}
