//! Connections: a pool for data, one apart for keep-alives, and how a statement is run on them.

use std::future::Future;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime, Timeouts};
use tenure_core::{Code, StoreError};
use tokio_postgres::config::SslMode;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Config, NoTls, Row};

use super::error;

/// How long a connection may take to be made or to come free.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a statement may take. Locks are given up by the server before that.
const ANSWER: Duration = Duration::from_secs(15);

/// A parameter with its type: named prepared statements would not survive a transaction pooler,
/// and the functions behind our statements keep their plans anyway.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// Reads the URL. The driver's words for a bad one never repeat it.
pub(super) fn config(url: &str) -> Result<Config, StoreError> {
    let mut config: Config =
        url.parse().map_err(|error| StoreError::refused(Code::BadUrl, cause(&error)))?;
    if config.get_ssl_mode() == SslMode::Require {
        return Err(StoreError::refused(Code::NoTls, "sslmode=require"));
    }
    if config.get_application_name().is_none() {
        config.application_name("tenure");
    }
    config.connect_timeout(CONNECT).tcp_user_timeout(ANSWER);
    Ok(config)
}

fn cause(error: &tokio_postgres::Error) -> String {
    use std::error::Error;
    error.source().map_or_else(|| "not a connection string".to_owned(), ToString::to_string)
}

pub(super) fn pool(config: &Config, size: usize) -> Result<Pool, StoreError> {
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(config.clone(), NoTls, recycling);
    let timeouts = Timeouts { wait: Some(CONNECT), create: Some(CONNECT), recycle: Some(CONNECT) };
    Pool::builder(manager)
        .max_size(size)
        .timeouts(timeouts)
        .runtime(Runtime::Tokio1)
        .build()
        .map_err(|error| StoreError::refused(Code::Failed, error.to_string()))
}

/// Runs one statement as its own transaction.
pub(super) async fn query(
    pool: &Pool,
    sql: &str,
    parameters: &[Parameter<'_>],
) -> Result<Vec<Row>, StoreError> {
    let client = pool.get().await.map_err(|error| error::of_pool(&error))?;
    match within(client.query_typed(sql, parameters)).await {
        Ok(rows) => Ok(rows),
        Err(error) => {
            // Whatever is still under way on that connection must not meet the next statement.
            if error.is_unknown() {
                drop(Object::take(client));
            }
            Err(error)
        }
    }
}

pub(super) async fn within<T>(
    statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(ANSWER, statement).await {
        Ok(answer) => answer.map_err(|error| error::of_statement(&error)),
        Err(_) => Err(StoreError::unknown(Code::Lost, format!("no answer in {ANSWER:?}"))),
    }
}
