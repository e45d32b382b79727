//! A schema of its own on the server that the tests are given.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure_core::{DutyKey, Session, Store};
use tenure_store::IfAbsent;
use tenure_store::conformance::{Boxed, Place};
use tenure_store::postgres::{Postgres, PostgresSettings};
use tokio_postgres::NoTls;

/// Counts the schemas of this run.
static FRESH: AtomicU64 = AtomicU64::new(0);

/// The strictest default of a role or database: our connections set their own isolation level.
const STRICT: &str = "?options=-c%20default_transaction_isolation%3Dserializable";

#[derive(Debug)]
pub struct Schema {
    /// For what is done behind the store's back.
    given: String,
    settings: PostgresSettings,
}

impl Schema {
    pub fn new(url: String) -> Self {
        let schema = format!("suite_{}", std::process::id());
        let settings =
            PostgresSettings { url: format!("{url}{STRICT}"), schema, if_absent: IfAbsent::Create };
        Self { given: url, settings }
    }

    fn edit(&self, sql: &str) -> Boxed<()> {
        let sql = sql.replace("tenure.", &format!("{}.", self.settings.schema));
        let url = self.given.clone();
        Box::pin(async move {
            let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
            let running = tokio::spawn(connection);
            client.batch_execute(&sql).await.unwrap();
            drop(client);
            running.await.unwrap().unwrap();
        })
    }
}

impl Place for Schema {
    fn open(&self) -> Boxed<Arc<dyn Store>> {
        let settings = self.settings.clone();
        Box::pin(async { Arc::new(Postgres::open(settings).await.unwrap()) as Arc<dyn Store> })
    }

    fn lapse(&self, session: Session) -> Boxed<()> {
        self.edit(&format!(
            "UPDATE tenure.session SET expires_at = least(expires_at, clock_timestamp())
             WHERE group_name = '{}' AND nonce = '{}'",
            session.group, session.nonce
        ))
    }

    fn lose_epoch(&self, duty: DutyKey) -> Boxed<()> {
        self.edit(&format!(
            "DELETE FROM tenure.hold WHERE group_name = '{}' AND duty = '{}'",
            duty.group, duty.id
        ))
    }

    fn fresh(&self) -> Boxed<Arc<dyn Place>> {
        let number = FRESH.fetch_add(1, Ordering::Relaxed);
        let schema = format!("{}_{number}", self.settings.schema);
        let settings = PostgresSettings { schema, ..self.settings.clone() };
        let given = self.given.clone();
        Box::pin(async { Arc::new(Self { given, settings }) as Arc<dyn Place> })
    }
}
