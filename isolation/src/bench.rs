//! A worker's database: runs operations alone, in order, and one while the other is stopped.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Statement};

use crate::level::{ConnectionPath, IsolationLevel};
use crate::operations::{Answer, Part, TestedOperation};
use crate::server::{Handles, PreparedServer, Side};
use crate::state::{self, RowSnapshot, StateReader, StateTable};
use crate::stop::{Stop, release};
use crate::view::{View, view};

/// Far above what a schedule needs; only turns a hang into an error.
const HANG_LIMIT: Duration = Duration::from_secs(60);

/// The server is asked this often who waits: asking more often slows the operations down.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Whether a side waits for a lock of another transaction.
const WAITS: &str = "SELECT EXISTS (SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = $1 AND wait_event_type = 'Lock'
        AND wait_event IN ('tuple', 'transactionid', 'advisory', 'relation'))";

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

/// Outcome of a schedule, and whether B waited until A went on.
#[derive(Clone, Debug)]
pub(crate) struct Played {
    pub(crate) outcome: PairOutcome,
    pub(crate) b_waited: bool,
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
        Ok(Self { level, tables, points, watcher, blocker, waits, parts, a, b })
    }

    fn part(&self, part: Part) -> Result<&PartState> {
        self.parts.iter().find(|it| it.part == part).context("no such part")
    }

    /// Reads the state, and puts the prepared one back.
    pub(crate) async fn take(&self, part: Part) -> Result<View> {
        let PartState { reader, prepared, .. } = self.part(part)?;
        let state = reader.read(&self.watcher).await?;
        let is_changed =
            |table: &&StateTable| state.rows.get(&table.name) != prepared.rows.get(&table.name);
        let of = self.tables.iter().filter(|table| part.has(&table.name));
        let changed: Vec<&StateTable> = of.filter(is_changed).collect();
        state::reset(&self.watcher, &changed).await?;
        Ok(view(&state, prepared))
    }

    /// Returns the prepared state.
    pub(crate) fn prepared(&self, part: Part) -> Result<View> {
        let PartState { prepared, .. } = self.part(part)?;
        Ok(view(prepared, prepared))
    }

    pub(crate) fn start(&self, operation: &TestedOperation, side: Side) -> JoinHandle<Answer> {
        let on = match side {
            Side::A => self.a.clone(),
            Side::B => self.b.clone(),
        };
        tokio::spawn((operation.run)(on))
    }

    /// Runs an operation alone and leaves its state.
    pub(crate) async fn run(&self, operation: &TestedOperation, side: Side) -> Result<Answer> {
        ended(self.start(operation, side), operation).await
    }

    /// Runs an operation alone.
    pub(crate) async fn alone(&self, operation: &TestedOperation, side: Side) -> Result<Alone> {
        let answer = self.run(operation, side).await?;
        Ok(Alone { answer, state: self.take(operation.part).await? })
    }

    /// Runs A and then B, or the reverse.
    pub(crate) async fn serial(
        &self,
        a: &TestedOperation,
        b: &TestedOperation,
        is_a_first: bool,
    ) -> Result<PairOutcome> {
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
        let a_runs = self.start(a, Side::A);
        if !self.until_still(&a_runs, a, Side::A).await? {
            release(&self.blocker).await?;
            ended(a_runs, a).await?;
            self.take(a.part).await?;
            return Ok(None);
        }
        let b_runs = self.start(b, Side::B);
        let b_waited = self.until_still(&b_runs, b, Side::B).await?;
        release(&self.blocker).await?;
        let (a_said, b_said) = (ended(a_runs, a).await?, ended(b_runs, b).await?);
        let outcome = PairOutcome { a: a_said, b: b_said, state: self.take(a.part).await? };
        Ok(Some(Played { outcome, b_waited }))
    }

    /// Waits until a side waits for a lock (true) or was answered (false).
    pub(crate) async fn until_still<T>(
        &self,
        running: &JoinHandle<T>,
        operation: &TestedOperation,
        side: Side,
    ) -> Result<bool> {
        let mut tick = tokio::time::interval(POLL_INTERVAL);
        let look = async {
            while !running.is_finished() {
                tick.tick().await;
                let row = self.watcher.query_one(&self.waits, &[&side.application()]).await?;
                if row.get(0) {
                    return Ok(true);
                }
            }
            Ok::<_, anyhow::Error>(false)
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
