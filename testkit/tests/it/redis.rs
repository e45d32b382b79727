use testkit::{RedisOptions, RedisServer};

#[test]
fn keeps_its_data_across_a_kill_when_append_only() {
    let password = Some("secret".to_owned());
    let options = RedisOptions { append_only: true, password, ..RedisOptions::default() };
    let server = RedisServer::start(options).unwrap();
    assert_eq!(server.url(), format!("redis://:secret@127.0.0.1:{}/0", server.port()));
    server.cli(&["set", "kept", "yes"]).unwrap();
    server.kill().unwrap();
    assert!(server.cli(&["ping"]).is_err());
    server.start_again().unwrap();
    assert_eq!(server.cli(&["get", "kept"]).unwrap(), "yes");
}

#[test]
fn takes_clock_steps_and_pauses() {
    let server =
        RedisServer::start(RedisOptions { faked_clock: true, ..RedisOptions::default() }).unwrap();
    let seconds =
        || -> i64 { server.cli(&["time"]).unwrap().lines().next().unwrap().parse().unwrap() };
    let before = seconds();
    server.step_clock(600).unwrap();
    let stepped = seconds() - before;
    assert!((600..700).contains(&stepped), "stepped by {stepped}");

    server.pause().unwrap();
    assert!(server.cli(&["-t", "1", "ping"]).is_err(), "a frozen server answered");
    server.resume().unwrap();
    assert_eq!(server.cli(&["ping"]).unwrap(), "PONG");
}

#[test]
fn serves_as_cluster_and_as_replica() {
    let cluster =
        RedisServer::start(RedisOptions { cluster: true, ..RedisOptions::default() }).unwrap();
    cluster.cli(&["set", "key", "value"]).unwrap();

    let primary = RedisServer::start(RedisOptions::default()).unwrap();
    let replica_of = Some(primary.port());
    let replica =
        RedisServer::start(RedisOptions { replica_of, ..RedisOptions::default() }).unwrap();
    assert!(replica.cli(&["role"]).unwrap().starts_with("slave"));
    assert!(replica.cli(&["set", "key", "value"]).is_err(), "a replica took a write");
}
