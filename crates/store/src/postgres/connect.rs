//! Connections, connection pools, and the execution of statements on them.

use std::future::{Future, poll_fn};
use std::time::Duration;

use deadpool_postgres::{
    Connect, Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime, Timeouts,
};
use futures_util::TryStreamExt;
use tenure_core::{BoxFuture, Code, StoreError, StoreResult};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Notification, Row};

use super::error;
use super::tls::{self, PostgresTlsConnector};

/// Time limit for making a connection, and for waiting for a free one.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle time after which TCP keep-alives probe the server.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
/// Time limit of a statement. The server gives up waiting for locks before that.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(15);

/// Begins a transaction where we cannot set the session's defaults. The limits are that of
/// [`prefer_index_plans`], and one for a client that stops before it sends `COMMIT`.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; \
    SET LOCAL lock_timeout = '3s'; SET LOCAL idle_in_transaction_session_timeout = '3s'";

const CLIENT_PORT_SQL: &str = include_str!("sql/connection/client_port.sql");
const ISOLATION_SQL: &str = include_str!("sql/connection/isolation.sql");
pub(super) const RECOVERY_SQL: &str = include_str!("sql/connection/recovery.sql");

/// Parameter with its type, which then need not be queried from the server.
pub type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// Server and connection settings, the same for every connection.
#[derive(Clone)]
pub struct PostgresConnectConfig {
    pub(super) config: Config,
    tls: PostgresTlsConnector,
    /// Whether each statement runs in a transaction that names its isolation level.
    begins: bool,
}

impl PostgresConnectConfig {
    /// Returns the TLS connector for one connection.
    pub(super) fn tls(&self) -> PostgresTlsConnector {
        Clone::clone(&self.tls)
    }
}

/// Reads the URL, and the files that it names. Errors of the driver never repeat the URL.
pub async fn server_from_url(url: &str) -> StoreResult<PostgresConnectConfig> {
    let (url, wanted) = tls::read(url)?;
    let mut config = config(&url)?;
    let tls = wanted.prepare(&mut config).await?;
    Ok(PostgresConnectConfig { config, tls, begins: false })
}

/// Opens a connection outside the pools, driven until its client is dropped.
pub(crate) async fn connect_once(url: &str) -> StoreResult<Client> {
    let server = server_from_url(url).await?;
    let connecting = server.config.connect(server.tls());
    let (client, connection) = connecting.await.map_err(error::connect_error)?;
    tokio::spawn(drive(connection, drop));
    Ok(client)
}

fn config(url: &str) -> StoreResult<Config> {
    // The driver's error names an unknown option, which may be a part of a password that was not
    // escaped.
    let unreadable = |_| StoreError::refused(Code::BadUrl, "not a PostgreSQL connection string");
    let mut config = url.parse::<Config>().map_err(unreadable)?;
    if config.get_hosts().is_empty() {
        // A handshake needs a host name, so each address also becomes one.
        for address in config.get_hostaddrs().to_vec() {
            config.host(address.to_string());
        }
    }
    if config.get_application_name().is_none() {
        config.application_name("tenure");
    }
    config
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_user_timeout(STATEMENT_TIMEOUT)
        .keepalives_idle(KEEPALIVE_IDLE);
    Ok(config)
}

/// Drives a connection until it ends; its client reports the end to its callers. Notices of the
/// server and the error that ends the connection become `tracing` events.
pub(super) async fn drive<S, T>(
    mut connection: Connection<S, T>,
    mut notified: impl FnMut(Notification),
) where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
        match message {
            Ok(AsyncMessage::Notice(notice)) => {
                tracing::info!("{}: {}", notice.severity(), notice.message());
            }
            Ok(AsyncMessage::Notification(notification)) => notified(notification),
            Ok(_) => {}
            Err(error) => return tracing::warn!("the connection ended: {error}"),
        }
    }
}

/// Connection factory of a pool.
struct PoolConnect(PostgresTlsConnector);

impl Connect for PoolConnect {
    fn connect(
        &self,
        config: &Config,
    ) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), tokio_postgres::Error>> {
        let (config, tls) = (config.clone(), PostgresTlsConnector::clone(&self.0));
        Box::pin(async move {
            let (client, connection) = config.connect(tls).await?;
            Ok((client, tokio::spawn(drive(connection, drop))))
        })
    }
}

/// Connection pool that runs statements.
pub struct PostgresPool {
    pool: Pool,
    /// Whether statements are prepared once per connection, which saves a third of a short call.
    named: bool,
    begins: bool,
}

impl PostgresPool {
    /// Creates a pool of at most `size` connections; `named` is the result of [`is_direct`].
    pub fn new(server: &PostgresConnectConfig, size: usize, named: bool) -> StoreResult<Self> {
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let connect = PoolConnect(server.tls());
        let manager = Manager::from_connect(server.config.clone(), connect, recycling);
        let timeouts = Timeouts {
            wait: Some(CONNECT_TIMEOUT),
            create: Some(CONNECT_TIMEOUT),
            recycle: Some(CONNECT_TIMEOUT),
        };
        let pool =
            Pool::builder(manager).max_size(size).timeouts(timeouts).runtime(Runtime::Tokio1);
        let failed = |error| StoreError::refused(Code::Failed, format!("{error}"));
        Ok(Self { pool: pool.build().map_err(failed)?, named, begins: server.begins })
    }

    /// Whether the connection to the server is direct, as found by [`is_direct`].
    pub fn is_direct(&self) -> bool {
        self.named
    }

    /// Returns a connection of the pool.
    pub async fn client(&self) -> StoreResult<Object> {
        self.pool.get().await.map_err(error::pool_error)
    }

    /// Runs one statement as its own transaction.
    pub async fn query(&self, sql: &str, parameters: &[Parameter<'_>]) -> StoreResult<Vec<Row>> {
        let client = PooledClient(Some(self.client().await?));
        let answer = match self.begins {
            true => with_timeout(client.run_committed(sql, parameters)).await,
            false => with_timeout(client.run(sql, parameters, self.named)).await,
        };
        // A statement that still runs on this connection must not meet the next one.
        if answer.as_ref().is_err_and(StoreError::is_unknown) {
            return answer;
        }
        client.give_back();
        answer
    }
}

/// Connection that only `give_back` returns to the pool: when a call is dropped halfway, its
/// connection is closed.
struct PooledClient(Option<Object>);

impl PooledClient {
    async fn run(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
        named: bool,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let Some(client) = &self.0 else { return Ok(Vec::new()) };
        if !named {
            return client.query_typed(sql, parameters).await;
        }
        let types: Vec<Type> = parameters.iter().map(|(_, kind)| kind.clone()).collect();
        let statement = client.prepare_typed_cached(sql, &types).await?;
        client
            .query_raw(&statement, parameters.iter().map(|(value, _)| *value))
            .await?
            .try_collect()
            .await
    }

    /// Runs a statement in its own read committed transaction. `BEGIN`, statement and `COMMIT` are
    /// sent at once; if this process stops halfway, the server ends the transaction.
    async fn run_committed(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let Some(client) = &self.0 else { return Ok(Vec::new()) };
        let (begun, rows, ended) = tokio::join!(
            client.batch_execute(BEGIN),
            client.query_typed(sql, parameters),
            client.batch_execute("COMMIT"),
        );
        let rows = rows?;
        ended.and(begun)?;
        Ok(rows)
    }

    fn give_back(mut self) {
        drop(self.0.take());
    }
}

impl Drop for PooledClient {
    fn drop(&mut self) {
        if let Some(client) = self.0.take() {
            drop(Object::take(client));
        }
    }
}

/// Whether the connection to the server is direct, so that the server sees our own port.
///
/// A transaction pooler may run each statement on another server connection, where a prepared
/// statement of the same name may be another client's. So statements get names only if the server
/// sees the right port for two of our connections.
// Why: docs/decisions/0020-postgres-named-statements.md
pub async fn is_direct(server: &PostgresConnectConfig) -> bool {
    for _ in 0..2 {
        let seen = tokio::time::timeout(CONNECT_TIMEOUT, sees_our_port(server)).await;
        if !matches!(seen, Ok(Some(true))) {
            return false;
        }
    }
    true
}

/// Makes the server keep one generic plan per statement, since our statements look rows up by key.
/// Sequential scans become the last choice: a plan from when a table was small would still scan it
/// after it has grown. The server stops waiting for a lock before we stop waiting for its answer.
// Why: docs/decisions/0019-postgres-lookups-by-key.md
pub fn prefer_index_plans(server: &mut PostgresConnectConfig) {
    let config = &mut server.config;
    let given = config.get_options().unwrap_or_default();
    // A last choice counts as expensive, and JIT would compile an expensive plan each time.
    let ours = "-c enable_seqscan=off -c plan_cache_mode=force_generic_plan -c jit=off \
        -c lock_timeout=3s -c default_transaction_isolation=read\\ committed";
    config.options(format!("{given} {ours}"));
}

/// Makes every transaction read committed: a routine locks and then reads, and must see what was
/// committed while it waited. Where a role or database has another default, and a pooler keeps us
/// from setting ours for the session, each statement begins its own transaction.
// Why: docs/decisions/0021-postgres-read-committed.md
pub async fn read_committed(
    server: &mut PostgresConnectConfig,
    client: &Client,
) -> StoreResult<()> {
    let rows = with_timeout(client.query_typed(ISOLATION_SQL, &[])).await?;
    let level: Option<&str> = rows.first().and_then(|row| row.try_get(0).ok());
    server.begins = level != Some("read committed");
    Ok(())
}

/// Restricts new connections to a primary, also after a failover.
pub fn primary_only(server: &mut PostgresConnectConfig) {
    server.config.target_session_attrs(TargetSessionAttrs::ReadWrite);
}

async fn sees_our_port(server: &PostgresConnectConfig) -> Option<bool> {
    let config = &server.config;
    // With several hosts, another one may answer each time.
    let ([Host::Tcp(host)], ports) = (config.get_hosts(), config.get_ports()) else { return None };
    let port = ports.first().copied().unwrap_or(5432);
    let address = config.get_hostaddrs().first().map_or(host.clone(), ToString::to_string);
    let stream = TcpStream::connect((address.as_str(), port)).await.ok()?;
    let ours = i32::from(stream.local_addr().ok()?.port());
    let tls = MakeTlsConnect::<TcpStream>::make_tls_connect(&mut server.tls(), host).ok()?;
    let (client, connection) = config.connect_raw(stream, tls).await.ok()?;
    let running = tokio::spawn(drive(connection, drop));
    let row = client.query_typed(CLIENT_PORT_SQL, &[]).await.ok()?;
    drop(client);
    let _ = running.await;
    Some(row.first()?.try_get::<_, Option<i32>>(0).ok()? == Some(ours))
}

/// Waits for an answer, for at most the time limit of a statement.
pub async fn with_timeout<T>(
    statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> StoreResult<T> {
    match tokio::time::timeout(STATEMENT_TIMEOUT, statement).await {
        Ok(answer) => answer.map_err(error::statement_error),
        Err(_) => Err(StoreError::unknown(
            Code::Lost,
            format!("no response within {STATEMENT_TIMEOUT:?}"),
        )),
    }
}
