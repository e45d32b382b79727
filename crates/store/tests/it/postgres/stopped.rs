//! Clients stopped in the middle of a statement: neither the statement timeout nor the idle timeout
//! fires, and the lock on the hold stays.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::StreamExt;
use rustix::process::{Pid, Signal, kill_process};
use tenure_core::store::{Claimed, OpenSession, Opened};
use tenure_core::{Hold, Session};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use super::Place;
use crate::player::{LONG, Player, or_hang, unique, wish};

/// More data than all buffers take.
pub(super) const ENDLESS: &str =
    "COPY (SELECT repeat('x', 1000), generate_series(1, 100000000)) TO STDOUT";
const UPLOAD: &str = "COPY tenure.effect FROM STDIN";

/// A `psql` with an effect under a hold, stopped in the middle of a statement; killed when dropped.
pub(super) struct Effect {
    psql: Child,
    name: String,
    watcher: Client,
}

impl Effect {
    /// Runs `statement` over `url` until the server waits for the client, and stops the client.
    pub(super) async fn start(place: &Place, url: &str, hold: &Hold, statement: &str) -> Self {
        let Hold { duty, epoch, instance, .. } = hold;
        let name = format!("effect_{}_{}", std::process::id(), unique());
        let assert =
            place.sql(&format!("SELECT tenure.assert_hold('{duty}', {epoch}, '{instance}')"));
        let insert = place.sql("INSERT INTO tenure.effect VALUES ('stopped')");
        let psql = Command::new("psql")
            .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", "BEGIN", "-c", &assert])
            .args(["-c", &insert, "-c", &place.sql(statement)])
            .env("PGAPPNAME", &name)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let effect = Self { psql, name, watcher: place.client().await };
        effect.until("query LIKE 'COPY%'", 1).await;
        kill_process(Pid::from_child(&effect.psql), Signal::STOP).unwrap();
        effect.until("wait_event IN ('ClientWrite', 'ClientRead')", 1).await;
        effect
    }

    async fn count(&self, what: &str) -> i64 {
        let count =
            format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND {what}");
        self.watcher.query_one(&count, &[&self.name]).await.unwrap().get(0)
    }

    /// Waits until this client has that many backends in this state.
    async fn until(&self, what: &str, wanted: i64) {
        let mut tick = tokio::time::interval(Duration::from_millis(20));
        let look = async {
            while self.count(what).await != wanted {
                tick.tick().await;
            }
        };
        or_hang(look).await;
    }

    pub(super) async fn until_gone(&self) {
        self.until("true", 0).await;
    }

    async fn is_there(&self) -> bool {
        self.count("true").await == 1
    }
}

impl Drop for Effect {
    fn drop(&mut self) {
        let _ = self.psql.kill();
        let _ = self.psql.wait();
    }
}

pub(super) async fn with_table(place: &Place) {
    let table = place.sql("CREATE TABLE tenure.effect (who text NOT NULL)");
    place.client().await.batch_execute(&table).await.unwrap();
}

async fn rows(place: &Place) -> i64 {
    let count = place.sql("SELECT count(*) FROM tenure.effect");
    place.client().await.query_one(&count, &[]).await.unwrap().get(0)
}

/// Returns a URL of the same server through its Unix socket.
async fn unix_url(place: &Place) -> String {
    let settings = "SELECT current_setting('unix_socket_directories'), current_setting('port')";
    let row = place.client().await.query_one(settings, &[]).await.unwrap();
    let (folder, port): (String, String) = (row.get(0), row.get(1));
    let (user, host) = place.url.rsplit_once('@').unwrap();
    let (_, database) = host.split_once('/').unwrap();
    format!("{user}@/{database}?host={folder}&port={port}")
}

/// Makes the server treat the session as expired since that long.
async fn expired(place: &Place, session: &Session, seconds: u32) {
    let sql = place.sql("UPDATE tenure.session SET expires_at = clock_timestamp() - interval");
    let sql = format!("{sql} '{seconds} s' WHERE nonce = '{}'", session.nonce);
    place.client().await.batch_execute(&sql).await.unwrap();
}

/// No instance claims, so it is the server that closes the connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_nothing_of_a_result_loses_its_tcp_connection() {
    let Some(place) = Place::given() else { return };
    let store = place.open().await;
    with_table(&place).await;
    let a = Player::join(&store, "a", Duration::from_millis(1_000)).await;
    let hold = a.hold("d").await;
    let effect = Effect::start(&place, &place.url, &hold, ENDLESS).await;
    effect.until_gone().await;
    let b = Player::join(&store, "b", LONG).await;
    assert!(or_hang(b.claim_until_granted("d")).await.epoch > hold.epoch);
    assert_eq!(rows(&place).await, 0);
}

/// Over a Unix socket, and while the server waits for more data of a `COPY`, no timeout fires.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_ends_the_effects_of_a_hold_that_has_expired() {
    let Some(place) = Place::given() else { return };
    let store = place.open().await;
    with_table(&place).await;
    for (n, (url, statement)) in
        [(unix_url(&place).await, ENDLESS), (place.url.clone(), UPLOAD)].iter().enumerate()
    {
        let id = &format!("d{n}");
        let (a, b) = (Player::join(&store, "a", LONG).await, Player::join(&store, "b", LONG).await);
        let hold = a.hold(id).await;
        // An effect of the same holder under another hold: it blocks nobody.
        let other = Effect::start(&place, url, &a.hold(&format!("{id}.2")).await, statement).await;
        let effect = Effect::start(&place, url, &hold, statement).await;
        assert!(matches!(b.claim(id).await, Claimed::HeldBy(_)));
        // A client whose session has just expired may be about to commit.
        expired(&place, &a.session, 0).await;
        assert!(matches!(b.claim(id).await, Claimed::HeldBy(_)));
        // The session's fate is open while a keep-alive is in progress.
        expired(&place, &a.session, 10).await;
        let mut keeping = place.client().await;
        let keep_alive = keeping.transaction().await.unwrap();
        let lock = place.sql("SELECT FROM tenure.session WHERE nonce =");
        let lock = format!("{lock} '{}' FOR NO KEY UPDATE", a.session.nonce);
        keep_alive.batch_execute(&lock).await.unwrap();
        assert!(matches!(b.claim(id).await, Claimed::HeldBy(_)));
        assert!(effect.is_there().await);
        keep_alive.commit().await.unwrap();
        assert!(matches!(b.claim(id).await, Claimed::HeldBy(_)));
        effect.until_gone().await;
        assert!(other.is_there().await);
        assert!(b.hold(id).await.epoch > hold.epoch);
    }
    assert_eq!(rows(&place).await, 0);
}

/// A returning holder opens a new session in place of its expired one.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_ends_the_effects_of_a_session_that_was_replaced() {
    let Some(place) = Place::given() else { return };
    let store = place.open().await;
    with_table(&place).await;
    let (a, b) = (Player::join(&store, "a", LONG).await, Player::join(&store, "b", LONG).await);
    let hold = a.hold("d").await;
    let effect = Effect::start(&place, &unix_url(&place).await, &hold, ENDLESS).await;
    expired(&place, &a.session, 0).await;
    let again = OpenSession { instance: a.session.instance, ..wish("a", LONG) };
    assert_eq!(store.open_session(&again).await.unwrap(), Opened::Open(again.session()));
    assert!(or_hang(b.claim_until_granted("d")).await.epoch > hold.epoch);
    effect.until_gone().await;
    assert_eq!(rows(&place).await, 0);
}

/// A role that may not end the other backend reports which one it waits for.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_may_not_end_an_effect_names_it() {
    let Some(place) = Place::given() else { return };
    let store = place.open().await;
    with_table(&place).await;
    let (a, b) = (Player::join(&store, "a", LONG).await, Player::join(&store, "b", LONG).await);
    let hold = a.hold("d").await;
    let effect = Effect::start(&place, &place.url, &hold, ENDLESS).await;
    expired(&place, &a.session, 10).await;

    let role = format!("claimer_{}_{}", std::process::id(), unique());
    let schema = &place.schema;
    let rights = format!(
        "CREATE ROLE {role}; GRANT USAGE ON SCHEMA {schema} TO {role};
         GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}; SET ROLE {role}"
    );
    let (client, mut connection) = tokio_postgres::connect(&place.url, NoTls).await.unwrap();
    let (said, mut heard) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut messages =
            futures_util::stream::poll_fn(move |context| connection.poll_message(context));
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notice(notice) = message {
                let _ = said.send(format!("{} {}", notice.severity(), notice.message()));
            }
        }
    });
    client.batch_execute(&rights).await.unwrap();
    let claim = "SELECT outcome FROM tenure.hold_claim('g', $1, $2::text::uuid, '{d}', '{0}', 'x')";
    let (instance, nonce) = (b.session.instance.as_str(), b.session.nonce.to_string());
    let parameters: [&(dyn ToSql + Sync); 2] = [&instance, &nonce];
    let outcome = client.query_one(&place.sql(claim), &parameters).await.unwrap();
    assert_eq!(outcome.get::<_, &str>(0), "held");
    let warning = or_hang(heard.recv()).await.unwrap();
    assert!(warning.starts_with("WARNING tenure: backend "), "{warning}");
    for said in [&effect.name, "blocks g/d,", &format!("grant pg_signal_backend to {role}")] {
        assert!(warning.contains(said), "{warning}");
    }
    assert!(effect.is_there().await);
}
