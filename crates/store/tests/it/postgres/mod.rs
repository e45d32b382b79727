//! PostgreSQL.

mod clock;
mod fence;
mod guard;
mod isolation;
mod locks;
mod nonce;
mod reconnect;
mod schema;
mod server;
mod starvation;
mod stopped;
mod survey;
#[cfg(feature = "tls")]
mod tls;
mod upkeep;

use std::sync::Arc;

use tenure_core::{Mutant, Session, Store, StoreError};
use tenure_store::IfAbsent;
use tenure_store::postgres::{Postgres, PostgresSettings};
use tokio_postgres::{Client, NoTls};

use crate::player::unique;

/// A separate schema on the server given to the tests.
#[derive(Clone)]
pub struct Place {
    pub url: String,
    pub schema: String,
    /// Default isolation level of the store's connections, as a role or database would set it.
    pub isolation: &'static str,
}

impl Place {
    /// Returns `None` on a machine without the server, except in CI, where that is a failure.
    pub fn given() -> Option<Self> {
        if let Ok(name) = std::env::var(Mutant::VARIABLE) {
            Mutant::turn_on(&name).unwrap();
        }
        testkit::service(testkit::TEST_POSTGRES).map(Self::on)
    }

    fn on(url: String) -> Self {
        let schema = format!("it_{}_{}", std::process::id(), unique());
        Self { url, schema, isolation: "" }
    }

    fn settings(&self) -> PostgresSettings {
        let (mut url, schema) = (self.url.clone(), self.schema.clone());
        if !self.isolation.is_empty() {
            let level = self.isolation.replace(' ', "%5C%20");
            url.push_str(&format!("?options=-c%20default_transaction_isolation%3D{level}"));
        }
        PostgresSettings { url, schema, if_absent: IfAbsent::Create }
    }

    async fn try_open(&self) -> Result<Arc<dyn Store>, StoreError> {
        Ok(Arc::new(Postgres::open(self.settings()).await?))
    }

    pub async fn open(&self) -> Arc<dyn Store> {
        self.try_open().await.unwrap()
    }

    /// Opens a connection of the user.
    pub async fn client(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Adapts a statement written for the schema `tenure`.
    pub fn sql(&self, sql: &str) -> String {
        sql.replace("tenure.", &format!("{}.", self.schema))
    }

    /// Makes the server treat a session's TTL as over.
    async fn lapse(&self, session: &Session) {
        let sql =
            self.sql("UPDATE tenure.session SET expires_at = clock_timestamp() WHERE nonce = ");
        let sql = format!("{sql}'{}'", session.nonce);
        self.client().await.batch_execute(&sql).await.unwrap();
    }
}
