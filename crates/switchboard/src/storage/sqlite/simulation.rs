//! Storage in memory, for simulations: without threads and files, and with any clock.

use std::sync::Arc;

use rusqlite::{Connection, MAIN_DB};
use tenure_store::BootClock;
use tenure_store::sql::sqlite::{
    SqliteConnection, Worker, WritePriority, migrate, statement_error,
};

use super::wal::WalCheckpointer;
use super::{HISTORY, SqliteStorage, WallClock, row};
use crate::error::StorageResult;

impl SqliteStorage {
    /// Creates a storage in memory. Its jobs run on the caller's thread.
    pub fn in_memory(clock: Arc<dyn WallClock>) -> StorageResult<Self> {
        let connection = Connection::open_in_memory().map_err(statement_error)?;
        connection.set_prepared_statement_cache_capacity(256);
        row::add_functions(&connection).map_err(statement_error)?;
        let mut connection =
            SqliteConnection::new(connection, Arc::new(BootClock), WritePriority::Yielding);
        migrate(&mut connection, &HISTORY)?;
        let worker = Worker::on_caller(connection);
        let wal = WalCheckpointer::new(worker.clone());
        Ok(Self { writer: worker.clone(), reader: worker, wal, clock, _share: None })
    }

    /// Copies the database, as a backup does.
    pub async fn copy(&self) -> StorageResult<Vec<u8>> {
        let job = |connection: &mut SqliteConnection| {
            connection.outside_transaction(|db| Ok(db.serialize(MAIN_DB)?.to_vec()))
        };
        Ok(self.writer.run(job).await?)
    }

    /// Replaces the database by a copy, as restoring a backup does.
    pub async fn restore(&self, copy: Vec<u8>) -> StorageResult<()> {
        let job = move |connection: &mut SqliteConnection| {
            connection.outside_transaction(|db| {
                db.deserialize_read_exact(MAIN_DB, &copy[..], copy.len(), false)
            })
        };
        Ok(self.writer.run(job).await?)
    }
}
