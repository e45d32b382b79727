//! Connection that reconnects after a failure.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tenure_core::{Code, StoreError, StoreResult};
use tokio::time::timeout;

use super::connect::{DrivenConnection, RedisConnector};
use super::error;
use super::script::{Script, command};

/// Time limit for connecting, signing in and loading the scripts.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Time limit of a command. Callers that cannot wait so long drop the call.
pub(super) const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);

/// One connection to the server. After it breaks, the next call opens a new one.
pub(super) struct RedisClient {
    connector: Arc<RedisConnector>,
    slot: Mutex<ConnectionSlot>,
    /// Held while connecting, so that callers wait for one connection instead of making many.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct ConnectionSlot {
    connection: Option<DrivenConnection>,
    /// Counts the connections, so that a late error closes only the connection that it came from.
    generation: u64,
}

/// Closes the connection unless the call completed: if the caller stopped waiting, the server may
/// never answer, and the next call must not wait for it as well.
struct ConnectionGuard<'a> {
    client: &'a RedisClient,
    generation: u64,
    answered: bool,
}

impl Drop for ConnectionGuard<'_> {
    fn drop(&mut self) {
        let mut slot = self.client.slot();
        if !self.answered && slot.generation == self.generation {
            slot.connection = None;
        }
    }
}

/// Result of one command.
pub(super) type CommandResult = StoreResult<Value>;

impl RedisClient {
    pub(super) fn new(connector: Arc<RedisConnector>) -> Self {
        Self { connector, slot: Mutex::default(), connecting: tokio::sync::Mutex::default() }
    }

    fn slot(&self) -> MutexGuard<'_, ConnectionSlot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Option<(DrivenConnection, u64)> {
        let slot = self.slot();
        Some((slot.connection.clone()?, slot.generation))
    }

    /// Returns the open connection, or opens one within [`CONNECT_TIMEOUT`]; the driver's own
    /// timeout covers only a part.
    async fn connection(&self) -> StoreResult<(DrivenConnection, u64)> {
        if let Some(open) = self.open() {
            return Ok(open);
        }
        let connecting = async {
            let _one_at_a_time = self.connecting.lock().await;
            if let Some(open) = self.open() {
                return Ok(open);
            }
            let connection = self.connect().await?;
            let mut slot = self.slot();
            slot.generation += 1;
            slot.connection = Some(connection.clone());
            Ok((connection, slot.generation))
        };
        let late = |_| self.connector.late();
        timeout(CONNECT_TIMEOUT, connecting).await.map_err(late)?
    }

    async fn connect(&self) -> StoreResult<DrivenConnection> {
        let wire = self.connector.open().await?;
        self.refuse_replica(&wire.connection).await?;
        self.load_scripts(&wire.connection).await?;
        Ok(wire)
    }

    /// Refuses a replica. Checked at each new connection, because a failover may have put another
    /// server at the same address. A user without permission for `INFO` is not checked here: a
    /// replica refuses the first write anyway.
    async fn refuse_replica(&self, connection: &MultiplexedConnection) -> StoreResult<()> {
        let answer = self.one(connection, &command(&["INFO", "replication"])).await;
        let Ok(Value::BulkString(text)) = answer else { return Ok(()) };
        if String::from_utf8_lossy(&text).lines().any(|line| line.trim() == "role:slave") {
            let detail = format!("{} is a replica", self.connector.address());
            return Err(StoreError::refused(Code::ReadOnly, detail));
        }
        Ok(())
    }

    async fn load_scripts(&self, connection: &MultiplexedConnection) -> StoreResult<()> {
        let commands = Script::load_all();
        let loading = commands.iter().map(|command| {
            let mut connection = connection.clone();
            async move { connection.send_packed_command(command).await }
        });
        for loaded in join_all(loading).await {
            let value = loaded.and_then(Value::extract_error);
            value.map_err(|error| error::connect_error(&error, self.connector.address()))?;
        }
        Ok(())
    }

    /// Sends commands back to back and collects their results: one round trip.
    ///
    /// Each command has its own result, so that one lost answer does not hide the others.
    pub(super) async fn send(&self, commands: &[Cmd]) -> StoreResult<Vec<CommandResult>> {
        let (wire, generation) = self.connection().await?;
        let connection = &wire.connection;
        let mut suspect = ConnectionGuard { client: self, generation, answered: false };
        let sent = commands.iter().map(|command| self.one(connection, command));
        let mut answers = join_all(sent).await;
        for (answer, command) in answers.iter_mut().zip(commands) {
            if matches!(answer, Ok(Value::ServerError(error)) if error::is_no_script(error)) {
                // The server forgot its scripts, so this one did not run.
                *answer = match self.load_scripts(connection).await {
                    Ok(()) => self.one(connection, command).await,
                    Err(error) => Err(error),
                };
            }
        }
        suspect.answered = answers.iter().all(Result::is_ok);
        let judge = |value| match value {
            Value::ServerError(error) => Err(error::server_error(&error)),
            value => Ok(value),
        };
        Ok(answers.into_iter().map(|a| a.and_then(judge)).collect())
    }

    async fn one(&self, connection: &MultiplexedConnection, command: &Cmd) -> CommandResult {
        let mut connection = connection.clone();
        let sent = timeout(COMMAND_TIMEOUT, connection.send_packed_command(command));
        let lost = || error::lost(self.connector.address());
        sent.await.map_err(|_| lost())?.map_err(|error| lost().with_source(error))
    }
}

/// Combines the results of one call. If only some parts were refused, others may have happened.
pub(super) fn settle(answers: Vec<CommandResult>) -> StoreResult<Vec<Value>> {
    let some_happened = answers.iter().any(|answer| !matches!(answer, Err(StoreError::Refused(_))));
    let whole: StoreResult<Vec<Value>> = answers.into_iter().collect();
    whole.map_err(|error| match error {
        StoreError::Refused(problem) if some_happened => StoreError::Unknown(problem),
        error => error,
    })
}
