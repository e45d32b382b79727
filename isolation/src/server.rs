//! The private server: one database per worker, copied from a prepared one.

use std::sync::Arc;

use anyhow::{Context, Result};
use tenure_core::Store;
use tenure_store::IfAbsent;
use tenure_store::postgres::{Postgres, PostgresSettings};
use tenure_switchboard::storage::{Storage, postgres};
use testkit::{PostgresOptions, PostgresServer, Proxy};
use tokio_postgres::{Client, NoTls};

use crate::level::{ConnectionPath, IsolationLevel};
use crate::prepare;

/// Schema of both the store and the switchboard.
pub(crate) const SCHEMA: &str = "tenure";
const TEMPLATE: &str = "iso_template";

/// A private server with the prepared database.
#[derive(Debug)]
pub struct PreparedServer {
    server: PostgresServer,
    proxy: Proxy,
    password: String,
}

/// The pools of one side, and the address for a connection of its own.
#[derive(Clone, Debug)]
pub struct Handles {
    /// Lease store.
    pub store: Arc<dyn Store>,
    /// Storage of the switchboard.
    pub storage: Arc<dyn Storage>,
    /// Address of the same database, role and application.
    pub url: String,
}

/// One of the two sides of a schedule; the name of its application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Is stopped.
    A,
    /// Runs meanwhile.
    B,
}

impl Side {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    pub(crate) fn application(self) -> &'static str {
        match self {
            Self::A => "iso-a",
            Self::B => "iso-b",
        }
    }
}

impl PreparedServer {
    /// Starts a server and prepares the database.
    pub async fn start() -> Result<Self> {
        let settings = [
            ("fsync", "off"),
            ("synchronous_commit", "off"),
            ("full_page_writes", "off"),
            ("autovacuum", "off"),
            ("jit", "off"),
            ("deadlock_timeout", "100ms"),
            ("max_connections", "400"),
            ("log_min_messages", "fatal"),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let server = PostgresServer::start(PostgresOptions { settings, ..Default::default() })?;
        let proxy = Proxy::start(server.port())?;
        let url = server.url();
        let password = url.split([':', '@']).nth(2).context("the URL has no password")?.to_owned();
        let this = Self { server, proxy, password };
        for level in IsolationLevel::ALL {
            let role = level.role();
            let create = format!("CREATE ROLE {role} SUPERUSER LOGIN PASSWORD '{}'", this.password);
            this.server.sql(&create)?;
            // With the clock of the tester.
            this.server.sql(&format!("ALTER ROLE {role} SET search_path = iso, pg_catalog"))?;
            if level.path != ConnectionPath::Raw {
                let default = level.default;
                let set = "SET default_transaction_isolation";
                this.server.sql(&format!("ALTER ROLE {role} {set} = '{default}'"))?;
            }
        }
        this.server.sql(&format!("CREATE DATABASE {TEMPLATE}"))?;
        prepare::prepare(&this.open(TEMPLATE, IsolationLevel::READ_COMMITTED, Side::B).await?)
            .await?;
        this.end_connections(TEMPLATE)?;
        Ok(this)
    }

    /// Creates the database of a worker.
    pub(crate) fn create(&self, database: &str) -> Result<()> {
        self.server.sql(&format!("CREATE DATABASE {database} TEMPLATE {TEMPLATE}")).map(drop)
    }

    /// Opens the pools of one side at a level.
    pub(crate) async fn open(
        &self,
        database: &str,
        level: IsolationLevel,
        side: Side,
    ) -> Result<Handles> {
        let url = self.url(database, level, side.application());
        let (schema, if_absent) = (SCHEMA.to_owned(), IfAbsent::Create);
        let settings = PostgresSettings { url: url.clone(), schema, if_absent };
        let store = Arc::new(Postgres::open(settings).await?);
        let storage = Arc::new(postgres::open(&url, SCHEMA, if_absent).await?);
        Ok(Handles { store, storage, url })
    }

    /// Changes the default of a raw level after its pools were opened, and ends their connections.
    pub(crate) fn make_raw(&self, database: &str, level: IsolationLevel) -> Result<()> {
        let (role, default) = (level.role(), level.default);
        self.server.sql(&format!(
            "ALTER ROLE {role} IN DATABASE {database} \
             SET default_transaction_isolation = '{default}'"
        ))?;
        let end = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity";
        self.server.sql(&format!("{end} WHERE datname = '{database}' AND usename = '{role}'"))?;
        Ok(())
    }

    fn end_connections(&self, database: &str) -> Result<()> {
        let end = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity";
        self.server.sql(&format!("{end} WHERE datname = '{database}'")).map(drop)
    }

    fn url(&self, database: &str, level: IsolationLevel, application: &str) -> String {
        let port = match level.path {
            ConnectionPath::Direct => self.server.port(),
            ConnectionPath::Pooled | ConnectionPath::Raw => self.proxy.port(),
        };
        let (role, password) = (level.role(), &self.password);
        format!(
            "postgres://{role}:{password}@127.0.0.1:{port}/{database}\
             ?application_name={application}"
        )
    }

    /// Connects for the tester itself; triggers do not fire for it.
    pub(crate) async fn connect(&self, database: &str) -> Result<Client> {
        let client =
            connect(&self.url(database, IsolationLevel::READ_COMMITTED, "iso-tester")).await?;
        client.batch_execute("SET session_replication_role = replica").await?;
        Ok(client)
    }
}

/// Opens a connection that ends with its client.
pub(crate) async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
