use testkit::{Pgbouncer, PostgresOptions, PostgresServer};

const EPOCH: &str = "select extract(epoch from clock_timestamp())::bigint";

#[test]
fn keeps_its_data_and_port_across_kill_and_stop() {
    let server = PostgresServer::start(PostgresOptions::default()).unwrap();
    let port = server.port();
    server.sql("create table kept (n int)").unwrap();

    server.sql("insert into kept values (1)").unwrap();
    server.kill().unwrap();
    assert!(server.sql("select 1").is_err());
    server.start_again().unwrap();

    server.sql("insert into kept values (2)").unwrap();
    server.stop().unwrap();
    assert!(server.sql("select 1").is_err());
    server.start_again().unwrap();

    assert_eq!(server.sql("select n from kept order by n").unwrap(), "1\n2");
    assert_eq!(server.port(), port);
}

#[test]
fn takes_settings_clock_steps_and_pauses() {
    let settings = vec![("work_mem".to_owned(), "5MB".to_owned())];
    let server =
        PostgresServer::start(PostgresOptions { settings, faked_clock: true, tls: None }).unwrap();
    assert_eq!(server.sql("show work_mem").unwrap(), "5MB");

    let epoch = || server.sql(EPOCH).unwrap().parse::<i64>().unwrap();
    let before = epoch();
    server.step_clock(3600).unwrap();
    let ahead = epoch() - before;
    server.step_clock(-7200).unwrap();
    let behind = epoch() - before;
    assert!((3600..3700).contains(&ahead), "stepped by {ahead}");
    assert!((-3600..-3500).contains(&behind), "stepped by {behind}");

    server.pause().unwrap();
    assert!(server.sql("select 1").is_err(), "a frozen server answered");
    server.resume().unwrap();
    assert_eq!(server.sql("select 1").unwrap(), "1");
}

#[test]
fn a_standby_follows_and_a_pooler_passes() {
    let primary = PostgresServer::start(PostgresOptions::default()).unwrap();
    primary.sql("create table followed (n int)").unwrap();
    let standby = PostgresServer::standby_of(&primary).unwrap();
    assert_eq!(standby.sql("select pg_is_in_recovery()").unwrap(), "t");
    assert_eq!(standby.sql("select count(*) from followed").unwrap(), "0");

    let pooler = Pgbouncer::start(&primary).unwrap();
    assert_ne!(pooler.url(), primary.url());

    primary.kill().unwrap();
    standby.promote().unwrap();
    standby.sql("insert into followed values (1)").unwrap();
}
