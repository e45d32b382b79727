//! `tenure serve`, tested by its clients, on SQLite and on PostgreSQL.

mod access;
mod channel;
mod connectors;
mod crash;
mod dead;
mod ending;
mod fence;
mod heartbeat;
mod inbox;
mod mcp;
mod nasty;
mod overload;
mod statistics;
mod submit;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{TEST_POSTGRES, service, wait_until};
use ureq::Agent;
use ureq::http::Response;

use crate::running::{LIMIT, Running};
use crate::tenure::Tenure;

/// Registers each case for both stores.
macro_rules! on_both_stores {
    ($($case:ident)*) => {
        mod sqlite {
            $(#[test] fn $case() { super::$case(&crate::switchboard::Place::sqlite()); })*
        }
        mod postgres {
            $(#[test] fn $case() {
                let Some(place) = crate::switchboard::Place::postgres() else { return };
                super::$case(&place);
            })*
        }
    };
}
pub(crate) use on_both_stores;

/// Store of the switchboards of one test.
pub struct Place {
    pub tenure: Tenure,
    pub url: String,
}

impl Place {
    pub fn sqlite() -> Self {
        let tenure = Tenure::new();
        let url = tenure.sqlite("tenure.db");
        Self { tenure, url }
    }

    /// Uses a schema of its own on the server of the test run.
    pub fn postgres() -> Option<Self> {
        let server = service(TEST_POSTGRES)?;
        Some(Self { tenure: Tenure::new(), url: in_a_schema(&server) })
    }

    /// Uses a schema on a PostgreSQL server that the test may kill.
    pub fn on(server: &testkit::PostgresServer) -> Self {
        Self { tenure: Tenure::new(), url: in_a_schema(&server.url()) }
    }

    /// Runs a statement on the tables of the switchboard.
    #[track_caller]
    pub fn execute(&self, sql: &str) {
        if let Some(path) = self.url.strip_prefix("sqlite:") {
            rusqlite::Connection::open(path).unwrap().execute_batch(sql).unwrap();
            return;
        }
        let (url, schema) = self.url.split_once("?schema=").unwrap();
        testkit::psql(url, &format!("SET search_path = {schema}; {sql}")).unwrap();
    }

    /// Makes the rows of a table older.
    pub fn age(&self, table: &str, columns: &[&str], minutes: u64) {
        let older = |column: &&str| match self.url.starts_with("sqlite:") {
            true => format!("{column} = {column} - {}", minutes * 60_000_000),
            false => format!("{column} = {column} - interval '{minutes} minutes'"),
        };
        let columns: Vec<String> = columns.iter().map(older).collect();
        self.execute(&format!("UPDATE {table} SET {}", columns.join(", ")));
    }

    /// Runs another command of `tenure` on the same store.
    pub fn tenure(&self, words: &[&str]) -> crate::tenure::Ran {
        self.tenure.run(&[&["--store", &self.url], words].concat())
    }

    /// Starts a replica.
    #[track_caller]
    pub fn serve(&self, words: &[&str]) -> Server {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("serve-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let fixed = ["--store", &self.url, "serve", "--listen", "127.0.0.1:0"];
        let mut running = self.tenure.start(&name, &[&fixed[..], words].concat());
        let log = format!("{name}.err");
        let listens = || address(&self.tenure.text(&log));
        let seen = wait_until("it listens", LIMIT, || listens().is_some() || running.has_ended());
        assert!(seen.is_ok() && listens().is_some(), "{}", self.tenure.text(&log));
        let server = Server { at: listens().unwrap(), running, log, token: None };
        wait_until("it is ready", LIMIT, || server.get("/ready").status == 200).unwrap();
        server
    }

    /// Returns the log of a server.
    pub fn said(&self, server: &Server) -> String {
        self.tenure.text(&server.log)
    }
}

fn in_a_schema(url: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}schema=sw_{}", uuid::Uuid::new_v4().simple())
}

/// Finds the address in the log of a server.
pub fn address(log: &str) -> Option<SocketAddr> {
    let (_, rest) = log.split_once("://127.0.0.1:")?;
    let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some(SocketAddr::from(([127, 0, 0, 1], port.parse().ok()?)))
}

/// A replica.
pub struct Server {
    pub at: SocketAddr,
    pub running: Running,
    log: String,
    /// Token of every request.
    pub token: Option<String>,
}

/// A response.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Value,
}

impl Answer {
    fn of(mut response: Response<ureq::Body>) -> Self {
        let headers = response.headers().iter();
        let headers = headers.map(|(name, value)| {
            (name.as_str().to_owned(), value.to_str().unwrap_or_default().to_owned())
        });
        let headers = headers.collect();
        let text = response.body_mut().read_to_string().unwrap_or_default();
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Self { status: response.status().as_u16(), headers, body }
    }

    /// Checks the status; returns the body.
    #[track_caller]
    pub fn is(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        self.body
    }

    /// Checks status and error code, and that there is a message; returns the body.
    #[track_caller]
    pub fn refused(self, status: u16, error: &str) -> Value {
        assert_eq!((self.status, &self.body["error"]), (status, &json!(error)), "{self:?}");
        assert!(self.body["message"].as_str().is_some_and(|text| !text.is_empty()), "{self:?}");
        self.body
    }
}

impl Answer {
    /// Checks an error in the form that dashboards expect.
    #[track_caller]
    pub fn fails(self, status: u16, code: &str) -> Value {
        let error = &self.body["error"];
        assert_eq!((self.status, &error["code"]), (status, &json!(code)), "{self:?}");
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{self:?}");
        assert_eq!(error["butler"], "switchboard", "{self:?}");
        assert!(error["details"].is_null() || error["details"].is_object(), "{self:?}");
        error.clone()
    }
}

/// Creates an HTTP client that keeps its connection alive.
pub fn agent() -> Agent {
    let config = Agent::config_builder().http_status_as_error(false);
    config.timeout_global(Some(LIMIT)).build().into()
}

impl Server {
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }

    pub fn get(&self, path: &str) -> Answer {
        self.get_with(path, &[])
    }

    #[track_caller]
    pub fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = agent().get(self.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        Answer::of(request.call().unwrap())
    }

    #[track_caller]
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_with(path, body.to_string().as_bytes(), &[("content-type", "application/json")])
    }

    #[track_caller]
    pub fn post_with(&self, path: &str, body: &[u8], headers: &[(&str, &str)]) -> Answer {
        self.try_post(&agent(), path, body, headers).unwrap()
    }

    /// Posts to a server that may be down.
    pub fn try_post(
        &self,
        agent: &Agent,
        path: &str,
        body: &[u8],
        headers: &[(&str, &str)],
    ) -> Result<Answer, ureq::Error> {
        let mut request = agent.post(self.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request.send(body).map(Answer::of)
    }

    #[track_caller]
    pub fn delete(&self, path: &str, body: &Value) -> Answer {
        let mut request = agent().delete(self.url(path)).force_send_body();
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.header("content-type", "application/json");
        Answer::of(request.send(body.to_string()).unwrap())
    }

    #[track_caller]
    pub fn beat(&self, heartbeat: &Value) -> Answer {
        self.post(HEARTBEAT, heartbeat)
    }

    /// Returns the value of a metric, by name and labels.
    #[track_caller]
    pub fn metric(&self, name: &str) -> Option<f64> {
        let Value::String(text) = self.get("/metrics").is(200) else { panic!() };
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map(|value| value.parse().unwrap())
    }

    #[track_caller]
    pub fn ingest(&self, envelope: &Value) -> Answer {
        self.post(INGEST, envelope)
    }

    #[track_caller]
    pub fn batch(&self, envelopes: &[Value]) -> Answer {
        self.post(BATCH, &Value::Array(envelopes.to_vec()))
    }

    /// Reads the whole inbox, page by page.
    #[track_caller]
    pub fn inbox(&self) -> Vec<Value> {
        let (mut all, mut after) = (Vec::new(), "0".to_owned());
        loop {
            let page = self.get(&format!("{INBOX}?limit=1000&after={after}")).is(200);
            all.extend(page["data"].as_array().unwrap().iter().cloned());
            after = page["meta"]["next_after"].as_str().unwrap().to_owned();
            if page["meta"]["at_end"] == true {
                return all;
            }
        }
    }

    pub fn kill(mut self) {
        self.running.signal(Signal::KILL);
        self.running.wait();
    }

    /// Stops the server gracefully.
    pub fn stop(self) {
        self.running.signal(Signal::TERM);
        self.running.exits(0);
    }
}

pub const INGEST: &str = "/api/switchboard/ingest";
pub const BATCH: &str = "/api/switchboard/ingest/batch";
pub const INBOX: &str = "/api/switchboard/inbox";
pub const LETTERS: &str = "/api/switchboard/dead-letters";
pub const FENCES: &str = "/api/switchboard/fences";

pub const HEARTBEAT: &str = "/api/switchboard/heartbeat";
pub const CONNECTORS: &str = "/api/connectors";

/// Returns a heartbeat with this uptime and number of ingested messages.
pub fn heartbeat(identity: &str, instance: u128, uptime_s: u64, ingested: u64) -> Value {
    json!({
        "schema_version": "connector.heartbeat.v1",
        "connector": {
            "connector_type": "telegram_bot", "endpoint_identity": identity,
            "instance_id": uuid::Uuid::from_u128(instance).to_string(), "version": "1.4.2"
        },
        "status": { "state": "healthy", "uptime_s": uptime_s },
        "counters": {
            "messages_ingested": ingested, "messages_failed": 0, "source_api_calls": ingested,
            "checkpoint_saves": 0
        },
        "sent_at": now()
    })
}

/// Returns the current time in RFC 3339 format.
pub fn now() -> String {
    jiff::Timestamp::now().to_string()
}

/// Returns an event of `test_bot`.
pub fn envelope(event_id: &str) -> Value {
    json!({
        "schema_version": "ingest.v1",
        "source": {
            "channel": "telegram", "provider": "telegram", "endpoint_identity": "test_bot"
        },
        "event": { "external_event_id": event_id, "observed_at": "2026-02-15T10:30:00Z" },
        "sender": { "identity": "user_eve" },
        "payload": {
            "raw": { "update_id": event_id }, "normalized_text": format!("Hello, {event_id}!")
        }
    })
}

/// Returns `count` events with different ids.
pub fn envelopes(count: usize) -> Vec<Value> {
    (0..count).map(|n| envelope(&format!("event-{n}"))).collect()
}

/// Checks that the inbox has each event once, under its acknowledged id, without position gaps.
#[track_caller]
pub fn holds_each_once(inbox: &[Value], told: &BTreeMap<String, String>) {
    let mut found = BTreeMap::new();
    for message in inbox {
        let id = message["envelope"]["event"]["external_event_id"].as_str().unwrap().to_owned();
        let request = message["request_id"].as_str().unwrap().to_owned();
        assert_eq!(found.insert(id.clone(), request), None, "{id} is there twice");
    }
    assert_eq!(&found, told);
    let positions: Vec<i64> = inbox.iter().map(|it| it["position"].as_i64().unwrap()).collect();
    let dense: Vec<i64> = (1..=i64::try_from(inbox.len()).unwrap()).collect();
    assert_eq!(positions, dense);
}

/// Whether this is a run of `cargo xtask soak`, with higher load.
pub fn soaking() -> bool {
    std::env::var_os("TENURE_SOAK").is_some()
}
