//! Commands on real servers, with a schema or prefix of their own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use testkit::{
    Certificates, Pgbouncer, PostgresOptions, PostgresServer, RedisOptions, RedisServer,
    TEST_POSTGRES, TEST_REDIS, service,
};
use uuid::Uuid;

use crate::ls::{check_json, prepare};
use crate::tenure::{Ran, Tenure};

/// Returns a unique name.
pub fn name() -> String {
    format!("cli_{}", Uuid::new_v4().simple())
}

#[test]
fn postgres_is_made_looked_at_and_up_to_date() {
    let Some(server) = service(TEST_POSTGRES) else { return };
    let (tenure, schema) = (Tenure::new(), name());
    let url = format!("{server}?schema={schema}");
    tenure.run(&["ls", "--store", &url]).refused("ST015");
    let made = tenure.run(&["migrate", "--store", &url]).ok();
    assert!(made.ends_with(&format!("?schema={schema} is a new store\n")), "{made}");
    let again = tenure.run(&["migrate", "--store", &url]).ok();
    assert!(again.ends_with("is up to date\n"), "{again}");
    prepare(&url);
    let ran =
        Ran::of(tenure.command(&["ls", "--json"]).env("TENURE_STORE", &url).output().unwrap());
    check_json(&ran.json(), true);
}

#[test]
fn a_wrong_password_is_denied_and_not_repeated() {
    let Some(server) = service(TEST_POSTGRES) else { return };
    let tenure = Tenure::new();
    let (user, host) = (server.split(':').nth(1).unwrap(), server.rsplit_once('@').unwrap().1);
    let wrong = format!("postgres:{user}:s3cret@{host}");
    for command in ["ls", "migrate"] {
        let ran = tenure.run(&[command, "--store", &wrong]);
        ran.refused("ST003");
        ran.hides("s3cret");
        let ran = tenure.run(&[command, "--json", "--store", &wrong]);
        assert!(ran.stderr.contains("\"ST003\""), "{ran:?}");
        ran.hides("s3cret");
    }
    let absent = format!("{}/no_such_database", server.rsplit_once('/').unwrap().0);
    tenure.run(&["ls", "--store", &absent]).refused("ST003");
}

/// The command has TLS and trusts the certificate authorities of the system.
#[test]
fn encrypted_servers_are_trusted_as_the_system_does() {
    if service(TEST_POSTGRES).is_none() || service(TEST_REDIS).is_none() {
        return;
    }
    let certificates = Certificates::make("tenure").unwrap();
    let tls = || Some(certificates.for_server(false));
    let postgres = PostgresOptions { tls: tls(), ..PostgresOptions::default() };
    let postgres = PostgresServer::start(postgres).unwrap();
    let redis = RedisServer::start(RedisOptions { tls: tls(), ..RedisOptions::default() }).unwrap();
    let tenure = Tenure::new();
    for url in [format!("{}?sslmode=verify-full", postgres.url()), redis.url()] {
        let words = ["migrate", "--store", &url];
        tenure.run(&words).refused("ST018");
        let mut command = tenure.command(&words);
        command.env("SSL_CERT_FILE", certificates.authority());
        assert!(Ran::of(command.output().unwrap()).ok().ends_with("is a new store\n"));
    }
}

#[test]
fn a_pooler_by_transaction_may_stand_between() {
    if service(TEST_POSTGRES).is_none() {
        return;
    }
    let server = PostgresServer::start(PostgresOptions::default()).unwrap();
    let pooler = Pgbouncer::start(&server).unwrap();
    let (tenure, url) = (Tenure::new(), pooler.url());
    assert!(tenure.run(&["migrate", "--store", &url]).ok().ends_with("is a new store\n"));
    prepare(&url);
    check_json(&tenure.run(&["ls", "--json", "--store", &url]).json(), true);
}

#[test]
fn a_role_that_may_not_make_tables_works_on_tables_made_for_it() {
    if service(TEST_POSTGRES).is_none() {
        return;
    }
    let server = PostgresServer::start(PostgresOptions::default()).unwrap();
    let place = server.url().rsplit_once('@').unwrap().1.to_owned();
    let (tenure, url) = (Tenure::new(), format!("postgres://app:s3cret@{place}?schema=lease"));
    server.sql("CREATE ROLE app LOGIN PASSWORD 's3cret'").unwrap();
    tenure.run(&["ls", "--store", &url]).refused("ST015");
    tenure.run(&["migrate", "--store", &url]).refused("ST005");

    // As an administrator, run the script, then the statements of its last lines.
    let script = tenure.run(&["migrate", "--print", "--store", &url]).ok();
    let file = tenure.path("migrate.sql");
    std::fs::write(&file, &script).unwrap();
    server.sql(&format!("\\i {}", file.display())).unwrap();
    tenure.run(&["ls", "--store", &url]).refused("ST003");
    let (_, grants) = script.split_once("-- For each role that runs Tenure:\n").unwrap();
    let (store, switchboard) =
        grants.split_once("-- For each role that runs the switchboard:\n").unwrap();
    let grants = format!("{store}{switchboard}");
    server.sql(&grants.replace("-- ", "").replace("TO role", "TO app")).unwrap();

    assert!(tenure.run(&["migrate", "--store", &url]).ok().ends_with("is up to date\n"));
    prepare(&url);
    check_json(&tenure.run(&["ls", "--json", "--store", &url]).json(), true);
    assert!(tenure.run(&["token", "create", "--role", "read", "--store", &url]).ok().len() > 32);
}

#[test]
fn redis_is_looked_at_when_it_is_built_in() {
    let tenure = Tenure::new();
    let printed = tenure.run(&["migrate", "--print", "--store", "redis://127.0.0.1:1/0"]);
    if printed.code != Some(0) {
        printed.refused("ST019");
        return;
    }
    let ran = tenure.run(&["ls", "--store", "redis://:s3cret@127.0.0.1:1/0"]);
    ran.refused("ST002");
    ran.hides("s3cret");
    let Some(server) = service(TEST_REDIS) else { return };
    let url = format!("{server}?prefix={}:", name());
    prepare(&url);
    check_json(&tenure.run(&["ls", "--json", "--store", &url]).json(), false);
    assert!(tenure.run(&["migrate", "--store", &url]).ok().ends_with("is up to date\n"));
}

/// A client is in the middle of a transaction under a hold that expired long ago.
#[test]
fn run_logs_whose_backend_it_ended() {
    let Some(server) = service(TEST_POSTGRES) else { return };
    let (tenure, schema) = (Tenure::new(), name());
    let url = format!("{server}?schema={schema}");
    tenure.run(&["migrate", "--store", &url]).ok();
    let mut psql = Command::new("psql");
    psql.args(["-X", "-q", "-t", "-v", "ON_ERROR_STOP=1", "-d", &server]).env("PGAPPNAME", &schema);
    let mut stuck = psql.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let nonce = Uuid::new_v4();
    let effect = format!(
        "INSERT INTO {schema}.session VALUES ('g', 'old', '{nonce}', '', '3 s',
            clock_timestamp() - interval '1 min', false, false, 0);
         INSERT INTO {schema}.hold VALUES ('g', 'd', 1, 'old', '{nonce}', true);
         BEGIN;
         SELECT FROM {schema}.hold FOR SHARE;
         SELECT pg_advisory_xact_lock_shared({schema}.effect_key('g', 'd', 1));
         \\echo locked\n"
    );
    stuck.stdin.as_mut().unwrap().write_all(effect.as_bytes()).unwrap();
    let mut said = BufReader::new(stuck.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap() == "locked"));
    let ran = tenure.run(&["run", "--store", &url, "--duty", "g/d", "--", "true"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ended = ran.stderr.lines().find(|line| line.contains("\"store_notice\"")).unwrap();
    for part in ["ended backend ", &format!("({schema})"), "in a transaction since 20", "g/d"] {
        assert!(ended.contains(part), "{ended}");
    }
    stuck.kill().unwrap();
    stuck.wait().unwrap();
}
