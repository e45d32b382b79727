//! Edge cases of the design.

use std::collections::BTreeSet;

use rustix::process::Signal;
use tenure_core::store::{OpenSession, Opened};
use tenure_core::{GroupName, InstanceId, Note, Ttl};
use tenure_duty::process;
use testkit::{Proxy, RedisOptions, RedisServer};

use super::stage::{Stage, ms, scaled, ttl};
use crate::running::{all_gone, children};
use crate::tenure::with_store;

#[test]
fn edge_while_redis_is_away_nobody_polls() {
    let Some(stage) = Stage::open(4) else { return };
    let [a, b] = stage.start_all(["a", "b"]);
    let sessions = stage.sessions();
    stage.shared(&[&a, &b], vec![2, 2]);
    stage.polled(&sessions, 1, 0);
    let fences = stage.fences();
    stage.redis.kill().unwrap();
    let ended = |of| stage.log(of).matches(r#""event":"expired""#).count();
    stage.until("all four have ended", || ended(&a) + ended(&b) >= 4);
    let seen = stage.history().len();
    // No poll began meanwhile: later polls have epochs granted after the restart.
    stage.redis.start_again().unwrap();
    stage.polled(&sessions, 2, seen);
    stage.newer_than(&fences, seen);
    stage.shared(&[&a, &b], vec![2, 2]);
    stage.each_alone();
}

/// The lease is renewed while work runs, under `tenure run` as under `tenure poll`.
#[test]
fn edge_work_longer_than_the_ttl_keeps_its_lease() {
    let Some(stage) = Stage::open(1) else { return };
    let (url, ttl) = (stage.redis.url(), ms(ttl()));
    let script = "mkfifo hold; echo $TENURE_EPOCH >> long; read line < hold; echo done >> long";
    let duty = ["run", "--store", &url, "--ttl", &ttl, "--duty", "long/x", "--", "sh", "-c"];
    let long = stage.tenure.start("long", &[&duty[..], &[script]].concat());
    // A poll that hangs is ended each time, while its lease stays.
    let hangs =
        "echo began $1 $TENURE_EPOCH $TENURE_INSTANCE >> polls; mkfifo never-$$; cat never-$$";
    let [a, b] = ["a", "b"].map(|name| stage.start_with(name, &url, hangs));
    stage.until("the work has begun", || !stage.tenure.text("long").is_empty());
    let end = || stage.ask::<i64>(&["PEXPIRETIME", "long:lease:x"]);
    let (first, whole) = (end(), i64::try_from(scaled(30).as_millis()).unwrap());
    // Without renewals the lease would have expired by the server's clock.
    stage.until("a TTL and a half are over", || end() > first + whole * 3 / 2);
    let sessions = stage.sessions();
    stage.polled(&sessions, 3, 0);
    assert_eq!(stage.lease(&sessions[0]), stage.history().pop().map(|line| line.instance));
    let grants = stage.audit().into_iter().filter(|entry| entry.kind == "granted").count();
    assert_eq!(grants, 1, "{:#?}", stage.audit());
    stage.each_alone();
    std::fs::write(stage.tenure.path("hold"), "go\n").unwrap();
    long.exits(0);
    let lines = stage.tenure.lines("long", 2);
    assert_eq!(lines[1..], ["done"]);
    drop((a, b));
}

#[test]
fn edge_an_instance_id_is_carried_once() {
    let Some(stage) = Stage::open(2) else { return };
    let instances = stage.start_all(["a", "b", "c"]);
    let ids: BTreeSet<_> = instances.iter().map(|instance| instance.id.clone()).collect();
    assert_eq!(ids.len(), 3);
    // Host, nanoseconds, eight random digits.
    for id in &ids {
        let [random, nanos, host] = id.rsplitn(3, '-').collect::<Vec<_>>()[..] else { panic!() };
        assert!(random.len() == 8 && u32::from_str_radix(random, 16).is_ok(), "{id}");
        assert!(nanos.parse::<u64>().unwrap() > 1 << 60 && !host.is_empty(), "{id}");
    }
    stage.polled(&stage.sessions(), 1, 0);
    // A second session under the id of a live instance is refused, without effect on the first.
    let open = OpenSession {
        group: GroupName::new("poll").unwrap(),
        instance: InstanceId::new(&*instances[0].id).unwrap(),
        nonce: process::fresh_nonce(),
        ttl: Ttl::new(ttl()).unwrap(),
        note: Note::new("").unwrap(),
    };
    let opened = with_store(&stage.redis.url(), async |store| store.open_session(&open).await);
    assert_eq!(opened.unwrap(), Opened::Taken);
    let seen = stage.history().len();
    stage.polled(&stage.sessions(), 2, seen);
    stage.each_alone();
}

/// The polled service is a separate server that every instance always reaches.
#[test]
fn edge_cut_off_from_redis_but_not_from_what_is_polled() {
    let Some(stage) = Stage::open(2) else { return };
    let service = RedisServer::start(RedisOptions::default()).unwrap();
    let script = format!(
        "redis-cli -p {} rpush polls \"began $1 $TENURE_EPOCH $TENURE_INSTANCE\" > said",
        service.port()
    );
    let polls = || -> Vec<String> {
        let lines = service.cli(&["lrange", "polls", "0", "-1"]).unwrap();
        lines.lines().map(str::to_owned).collect()
    };
    let of = |id: &str| polls().iter().filter(|line| line.ends_with(id)).count();
    let wire = Proxy::start(stage.redis.port()).unwrap();
    let a = stage.start_with("a", &format!("redis://127.0.0.1:{}/0", wire.port()), &script);
    stage.until("it polls", || of(&a.id) >= 4);
    wire.cut();
    stage.until("the leases have ended", || stage.leases().is_empty());
    let seen = polls().len();
    let b = stage.start_with("b", &stage.redis.url(), &script);
    stage.until("another polls", || of(&b.id) >= 6);
    let after = polls().split_off(seen);
    assert!(after.iter().all(|line| line.ends_with(&b.id)), "{after:#?}");
}

#[test]
fn edge_all_crash_and_start_again_at_once() {
    let Some(stage) = Stage::open(9) else { return };
    let mut before = stage.start_all(["a", "b", "c"]);
    let sessions = stage.sessions();
    stage.polled(&sessions, 1, 0);
    stage.until("all are leased", || stage.leases().len() == 9);
    let guards: Vec<_> =
        before.iter().flat_map(|instance| children(instance.running.pid())).collect();
    before.iter().for_each(|instance| instance.running.signal(Signal::KILL));
    for instance in &mut before {
        instance.running.wait();
    }
    // Until then a poll may write its last line.
    stage.until("the guards have ended all polls", || all_gone(&guards));
    let (ends, fences, seen) = (stage.ends(&sessions), stage.fences(), stage.history().len());
    let [a, b, c] = stage.start_all(["d", "e", "f"]);
    stage.shared(&[&a, &b, &c], vec![3, 3, 3]);
    stage.polled(&sessions, 1, seen);
    stage.granted_after(&ends);
    stage.newer_than(&fences, seen);
    stage.each_alone();
}
