//! Replicas and database servers that are killed under load.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::Value;
use testkit::{PostgresOptions, PostgresServer, wait_until};
use ureq::Agent;

use super::{Answer, BATCH, Place, Server, agent, envelope, holds_each_once};
use crate::running::LIMIT;

/// Events that clients submit again until they are acknowledged.
struct Load {
    events: usize,
    /// Request ids of acknowledged events, by event id.
    told: Mutex<BTreeMap<String, String>>,
    acknowledged: AtomicU64,
    unavailable: AtomicU64,
    /// 503 without `retry-after`, or a status that no client should see here.
    surprises: Mutex<Vec<Answer>>,
    stopped: AtomicBool,
}

const CLIENTS: usize = 4;
const SIZE: usize = 10;

impl Load {
    fn new(events: usize) -> Self {
        Self {
            events,
            told: Mutex::default(),
            acknowledged: AtomicU64::new(0),
            unavailable: AtomicU64::new(0),
            surprises: Mutex::default(),
            stopped: AtomicBool::new(false),
        }
    }

    /// Returns the events of a client, in batches.
    fn batches(&self, client: usize) -> Vec<Vec<Value>> {
        let mine = (0..self.events).filter(|n| n % CLIENTS == client);
        let mine: Vec<Value> = mine.map(|n| envelope(&format!("event-{n}"))).collect();
        mine.chunks(SIZE).map(<[Value]>::to_vec).collect()
    }

    /// Submits all events of a client once, in order, unless stopped.
    fn submit(&self, client: usize, servers: &[&Server]) {
        let agent = agent();
        for (n, batch) in self.batches(client).iter().enumerate() {
            if self.stopped.load(Ordering::Relaxed) {
                return;
            }
            self.try_batch(&agent, servers[n % servers.len()], batch);
        }
    }

    /// Submits all events of a client until all are acknowledged.
    fn submit_all(&self, client: usize, servers: &[&Server]) {
        let agent = agent();
        for (n, batch) in self.batches(client).iter().enumerate() {
            let mut attempt = n;
            let done = || {
                attempt += 1;
                self.try_batch(&agent, servers[attempt % servers.len()], batch)
            };
            wait_until("a batch is acknowledged", LIMIT, done).unwrap();
        }
    }

    fn try_batch(&self, agent: &Agent, server: &Server, batch: &[Value]) -> bool {
        let body = Value::Array(batch.to_vec()).to_string();
        let kind = [("content-type", "application/json")];
        let Ok(answer) = server.try_post(agent, BATCH, body.as_bytes(), &kind) else {
            return false;
        };
        if answer.status != 202 {
            self.unavailable.fetch_add(1, Ordering::Relaxed);
            if answer.status != 503 || !answer.headers.contains_key("retry-after") {
                self.surprises.lock().unwrap().push(answer);
            }
            return false;
        }
        let mut told = self.told.lock().unwrap();
        for (envelope, result) in batch.iter().zip(answer.body["results"].as_array().unwrap()) {
            let id = envelope["event"]["external_event_id"].as_str().unwrap().to_owned();
            let request = result["request_id"].as_str().unwrap().to_owned();
            let first = told.entry(id).or_insert_with(|| request.clone());
            assert_eq!(*first, request, "an event has two ids");
        }
        drop(told);
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn wait_for(&self, batches: u64) {
        let enough = || self.acknowledged.load(Ordering::Relaxed) >= batches;
        wait_until("batches are acknowledged", LIMIT, enough).unwrap();
    }

    /// Checks that each event is stored once under its acknowledged id, without surprises.
    #[track_caller]
    fn ends_well(self, server: &Server) {
        let surprises = self.surprises.into_inner().unwrap();
        assert!(surprises.is_empty(), "{surprises:?}");
        let told = self.told.into_inner().unwrap();
        assert_eq!(told.len(), self.events);
        holds_each_once(&server.inbox(), &told);
    }
}

super::on_both_stores! {
    killed_in_the_middle_of_submissions
    one_of_two_replicas_is_killed
}

fn killed_in_the_middle_of_submissions(place: &Place) {
    let load = Load::new(2_000);
    let server = place.serve(&[]);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (load, server) = (&load, &server);
            scope.spawn(move || load.submit(client, &[server]));
        }
        load.wait_for(20);
        server.running.signal(rustix::process::Signal::KILL);
        load.stopped.store(true, Ordering::Relaxed);
    });
    server.kill();
    assert!(load.told.lock().unwrap().len() < load.events, "it was killed too late");
    let server = place.serve(&[]);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (load, server) = (&load, &server);
            scope.spawn(move || load.submit_all(client, &[server]));
        }
    });
    load.ends_well(&server);
}

fn one_of_two_replicas_is_killed(place: &Place) {
    let load = Load::new(2_000);
    let replicas = [place.serve(&[]), place.serve(&[])];
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (load, replicas) = (&load, &replicas);
            scope.spawn(move || load.submit_all(client, &[&replicas[0], &replicas[1]]));
        }
        load.wait_for(20);
        replicas[0].running.signal(rustix::process::Signal::KILL);
    });
    load.ends_well(&replicas[1]);
}

/// Clients are told to retry; after the restart, every event is stored once.
#[test]
fn postgres_is_restarted_under_load() {
    if testkit::service(testkit::TEST_POSTGRES).is_none() {
        return;
    }
    let postgres = PostgresServer::start(PostgresOptions::default()).unwrap();
    let place = Place::on(&postgres);
    let load = Load::new(4_000);
    let server = place.serve(&[]);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (load, server) = (&load, &server);
            scope.spawn(move || load.submit_all(client, &[server]));
        }
        load.wait_for(20);
        postgres.kill().unwrap();
        let told_off = || load.unavailable.load(Ordering::Relaxed) >= 4;
        wait_until("clients are told to come again", LIMIT, told_off).unwrap();
        wait_until("it is not ready", LIMIT, || server.get("/ready").status == 503).unwrap();
        postgres.start_again().unwrap();
    });
    wait_until("it is ready again", LIMIT, || server.get("/ready").status == 200).unwrap();
    load.ends_well(&server);
}
