//! Requests and answers of the local API.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::process::Signal;
use testkit::{TEST_POSTGRES, service};

use super::{Place, held, run_on, stay, stores};
use crate::stores::name;
use crate::tenure::{Ran, Tenure};

/// Commits in a row; more in a soak.
fn commits() -> u64 {
    if std::env::var_os("TENURE_SOAK").is_some() { 10_000 } else { 500 }
}

#[test]
fn a_program_reads_and_writes_its_checkpoint_on_every_store() {
    for (n, store) in stores(&Tenure::new()).iter().enumerate() {
        let tenure = Tenure::new();
        let (running, api) = held(&tenure, "a", store, &[]);
        let none = api.get("/checkpoint");
        assert_eq!((none.result(), none.version()), ((404, "absent".to_owned()), 0), "{store}");
        assert_eq!(none.json()["error"]["code"], "ST031");

        let first = api.put(&["If-None-Match: *"], "{\"last_update_id\": 1}");
        assert_eq!((first.result(), first.version()), ((200, "stored".to_owned()), 1), "{store}");
        let again = api.put(&["If-None-Match: *"], "{}");
        assert_eq!((again.result(), again.version()), ((412, "conflict".to_owned()), 1));
        assert_eq!(again.json()["error"]["code"], "DT020");
        // A checkpoint need not be text, and keeps its bytes.
        let bytes = b"\0\xff\n{\"x\":1}";
        let second = api.send("PUT", "/checkpoint", &["If-Match: \"1\""], bytes);
        assert_eq!((second.result(), second.version()), ((200, "stored".to_owned()), 2));
        let read = api.get("/checkpoint");
        assert_eq!((read.status, &read.body[..], read.version()), (200, &bytes[..], 2));
        assert_eq!(read.header("content-type"), Some("application/octet-stream"));
        let hold = api.get("/hold").json();
        assert_eq!(read.header("tenure-epoch").unwrap(), hold["epoch"].to_string());
        assert_eq!(read.header("tenure-instance"), hold["instance"].as_str());
        // Without a condition, the newest version is replaced.
        let mut connection = api.connect().unwrap();
        for _ in 0..commits() {
            let put = connection.send("PUT", "/checkpoint", &[], b"{\"n\": 0}").unwrap();
            assert_eq!(put.result(), (200, "stored".to_owned()), "{store}");
        }
        assert_eq!(api.get("/checkpoint").version(), 2 + commits());
        drop(connection);
        running.signal(Signal::TERM);
        running.exits(128 + 15);
        assert!(tenure.text("a.err").contains("\"event\":\"committed\""));

        // From outside, the checkpoint is the same, and can be replaced.
        let get = ["checkpoint", "get", "g/d", "--store", store];
        assert_eq!(tenure.run(&get).ok(), "{\"n\": 0}");
        std::fs::write(tenure.path("new"), format!("{{\"outside\": {n}}}")).unwrap();
        let put = ["checkpoint", "put", "g/d", "new", "--store", store];
        tenure.run(&put).ok();
        assert_eq!(tenure.run(&get).ok(), format!("{{\"outside\": {n}}}"), "{store}");
    }
}

#[test]
fn a_program_knows_its_hold() {
    let tenure = Tenure::new();
    let store = tenure.sqlite("tenure.db");
    let (running, api) = held(&tenure, "a", &store, &["--listen", "0"]);
    let hold = api.get("/hold").json();
    assert_eq!(
        (&hold["duty"], &hold["group"], &hold["id"]),
        (&"g/d".into(), &"g".into(), &"d".into())
    );
    assert_eq!((&hold["state"], &hold["draining"]), (&"held".into(), &false.into()));
    let left = hold["remaining_ms"].as_u64().unwrap();
    assert!(left > 0 && left < 6_000, "{hold}");

    let check = |path: &str| api.post(path).result();
    assert_eq!(check("/check"), (200, "ok".to_owned()));
    assert_eq!(check("/check?seconds=0.5"), (200, "ok".to_owned()));
    assert_eq!(check("/check?seconds=60"), (409, "short".to_owned()));
    for bad in ["/check?seconds=x", "/check?seconds=-1", "/check?for=1s", "/check?seconds=1e9"] {
        assert_eq!(check(bad), (400, "invalid".to_owned()), "{bad}");
    }

    let report = br#"{"oldest_pending_at": "2026-02-15T10:00:00Z", "connector_type": "telegram"}"#;
    assert_eq!(api.send("POST", "/progress", &[], report).result(), (200, "ok".to_owned()));
    assert_eq!(api.post("/progress").result(), (200, "ok".to_owned()));
    let bad = api.send("POST", "/progress", &[], br#"{"oldest_pending_at": "yesterday"}"#);
    assert_eq!(bad.result(), (400, "invalid".to_owned()));
    let at = crate::listen::address(&tenure, "a.err");
    let series = "connector_checkpoint_lag_seconds{connector_type=\"telegram\",\
                  endpoint_identity=\"d\",shard_id=\"\"}";
    let lag = crate::listen::metrics(at)[series].parse::<f64>().unwrap();
    assert!(lag > 1_000_000.0, "{lag}");
    assert_eq!(crate::listen::get(at, "/ready").0, "HTTP/1.1 200 OK");

    running.signal(Signal::TERM);
    running.exits(128 + 15);
}

#[test]
fn a_request_that_makes_no_sense_is_refused_and_says_how() {
    let tenure = Tenure::new();
    let (running, api) = held(&tenure, "a", &tenure.sqlite("tenure.db"), &[]);
    let result = |method: &str, path: &str, headers: &[&str], body: &[u8]| {
        let response = api.send(method, path, headers, body);
        let error = response.json()["error"].clone();
        assert_eq!(error["kept"], "nothing was changed", "{error}");
        (response.status, error["detail"].as_str().unwrap().to_owned())
    };
    assert_eq!(result("GET", "/", &[], b"").0, 404);
    assert!(result("GET", "/lease", &[], b"").1.contains("/hold, /checkpoint"));
    assert_eq!(
        result("DELETE", "/checkpoint", &[], b""),
        (405, "/checkpoint does not accept DELETE; use GET, PUT".to_owned())
    );
    for headers in [
        &["If-Match: x"][..],
        &["If-Match: \"1"],
        &["If-None-Match: \"1\""],
        &["If-Match: \"1\"", "If-None-Match: *"],
    ] {
        assert_eq!(result("PUT", "/checkpoint", headers, b"{}").0, 400, "{headers:?}");
    }
    let large = vec![b'x'; 256 * 1024 + 1];
    assert_eq!(
        result("PUT", "/checkpoint", &[], &large),
        (413, "the limit is 262144 bytes".to_owned())
    );
    assert_eq!(api.get("/checkpoint").status, 404);
    assert_eq!(api.send("PUT", "/checkpoint", &[], &large[1..]).status, 200);
    assert_eq!(api.get("/checkpoint").body.len(), 256 * 1024);
    running.signal(Signal::TERM);
    running.exits(128 + 15);
}

/// `tenure` itself finds the API in the environment.
#[test]
fn commands_find_the_api_by_themselves() {
    let tenure = Tenure::new();
    let store = tenure.sqlite("tenure.db");
    let binary = env!("CARGO_BIN_EXE_tenure");
    let script = format!(
        "t() {{ {binary} \"$@\"; echo \"exit $?\"; }}
         t checkpoint get; echo '{{\"n\": 1}}' > one; t checkpoint put one
         echo two | t checkpoint put -; t checkpoint get; t checkpoint put one --if-version 1
         t checkpoint put one --if-version 2; t hold check --for 1s; t hold check --for 1h
         t hold show; t checkpoint put one --force; t checkpoint put no-such-file"
    );
    let ran = Ran::of(tenure.command(&run_on(&store, &[], &script)).output().unwrap());
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines[..3], ["exit 5", "stored as version 1", "exit 0"], "{ran:?}");
    assert_eq!(lines[3..8], ["stored as version 2", "exit 0", "two", "exit 0", "exit 4"]);
    assert_eq!(lines[8..10], ["stored as version 3", "exit 0"]);
    assert!(lines[10].ends_with("s left") && lines[11] == "exit 0", "{lines:?}");
    assert!(lines[12].ends_with("s left") && lines[13] == "exit 1", "{lines:?}");
    assert!(lines[14].starts_with("g/d epoch 1 held, "), "{lines:?}");
    assert_eq!(lines[15..], ["exit 0", "exit 2", "exit 1"]);
    for said in ["ST031: ", "DT020: ", "version 2 is stored", "cannot read no-such-file: "] {
        assert!(ran.stderr.contains(said), "{said}: {ran:?}");
    }
}

#[test]
fn outside_of_run_a_checkpoint_is_put_under_a_claim() {
    let tenure = Tenure::new();
    std::fs::write(tenure.path("one"), "1").unwrap();
    let put = |options: &[&str]| tenure.run(&[&["checkpoint", "put"], options].concat());
    put(&["g/d", "one"]).refused("ST015");
    tenure.run(&["migrate"]).ok();
    assert_eq!(put(&[]).code, Some(2));
    assert_eq!(put(&["g/d", "one", "--if-version", "1"]).code, Some(4));
    assert_eq!(put(&["g/d", "one", "--dry-run"]).ok(), "would store version 1 of g/d\n");
    let first = put(&["g/d", "one", "--if-version", "0"]).ok();
    assert_eq!(first, "g/d: stored as version 1, epoch 2\n");
    assert_eq!(put(&["g/d", "one", "--if-version", "1", "--json"]).json()["version"], 2);
    std::fs::write(tenure.path("large"), vec![b'x'; 256 * 1024 + 1]).unwrap();
    put(&["g/d", "large"]).refused("ST011");
    // While it is held, only with force; the holder is then fenced.
    let store = tenure.sqlite("tenure.db");
    let (mut running, api) = held(&tenure, "a", &store, &[]);
    let held_by = put(&["g/d", "one"]);
    held_by.refused_with("ST025", 6);
    assert!(held_by.stderr.contains("hint: take it from its holder with --force"), "{held_by:?}");
    assert_eq!(api.get("/checkpoint").version(), 2);
    let preview = put(&["g/d", "one", "--dry-run", "--json"]).json();
    assert!(preview["version"] == 3 && preview["held_by"].is_string(), "{preview}");
    put(&["g/d", "one", "--force"]).ok();
    tenure.said(&running, "\"event\":\"revoked\"");
    running.signal(Signal::TERM);
    running.wait();
    let away = ["checkpoint", "put", "g/d", "one", "--store", "postgres://127.0.0.1:1/x"];
    tenure.run(&away).refused_with("ST002", 7);
    let away = ["checkpoint", "get", "g/d", "--store", "redis://127.0.0.1:1/0"];
    tenure.run(&away).refused_with("ST002", 7);
}

/// A command may start another `tenure run`: each program has the API of its own hold.
#[test]
fn holds_may_be_nested() {
    let tenure = Tenure::new();
    let store = tenure.sqlite("tenure.db");
    let binary = env!("CARGO_BIN_EXE_tenure");
    let inner = format!("{binary} checkpoint put -; echo ${{TENURE_API_TOKEN-none}}");
    let script = format!(
        "echo outer | {binary} checkpoint put -
         echo inner | {binary} run --duty h/inner -- sh -c '{inner}' 2> inner.err"
    );
    let ran =
        Ran::of(tenure.command(&run_on(&store, &["--api-port", "0"], &script)).output().unwrap());
    assert_eq!(ran.stdout, "stored as version 1\nstored as version 1\nnone\n", "{ran:?}");
    let get = |duty: &str| tenure.run(&["checkpoint", "get", duty]).ok();
    assert_eq!((get("g/d"), get("h/inner")), ("outer\n".to_owned(), "inner\n".to_owned()));
}

#[test]
fn a_command_without_a_hold_says_so() {
    let tenure = Tenure::new();
    for words in [&["hold", "check"][..], &["hold", "show"], &["checkpoint", "get"]] {
        let ran = tenure.run(words);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("tenure run"), "{ran:?}");
    }
    // The hold of a command that outlived it.
    let gone = tenure.path("gone.sock");
    let mut command = tenure.command(&["hold", "check"]);
    let ran = Ran::of(command.env("TENURE_API", &gone).output().unwrap());
    ran.refused_with("ST020", 6);
    // One that cannot be reached may be valid.
    let mut command = tenure.command(&["hold", "check"]);
    let ran = Ran::of(command.env("TENURE_API", "/etc/passwd/1.sock").output().unwrap());
    ran.refused_with("ST010", 7);
    let mut command = tenure.command(&["checkpoint", "get"]);
    let ran = Ran::of(command.env("TENURE_API", "http://example.org").output().unwrap());
    ran.refused("ST011");
}

/// The socket is private, and goes with its grant.
#[test]
fn a_socket_is_private_and_goes_with_the_command() {
    for store in stores(&Tenure::new()) {
        let tenure = Tenure::new();
        let (running, api) = held(&tenure, "a", &store, &[]);
        let Place::Socket(path) = &api else { panic!("{api:?}") };
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(path), 0o600);
        assert_eq!(
            (mode(path.parent().unwrap()), mode(path.ancestors().nth(2).unwrap())),
            (0o700, 0o700)
        );
        running.signal(Signal::TERM);
        running.exits(128 + 15);
        assert!(!path.ancestors().nth(2).unwrap().exists(), "{store}");
    }
}

#[test]
fn a_socket_s_path_has_a_limit() {
    let tenure = Tenure::new();
    let folder = tenure.path(&"x".repeat(80));
    std::fs::create_dir(&folder).unwrap();
    let mut command = tenure.command(&["run", "--duty", "g/d", "--", "true"]);
    let ran = Ran::of(command.env("TMPDIR", &folder).output().unwrap());
    assert_eq!(ran.code, Some(125), "{ran:?}");
    assert!(ran.stderr.contains("set TMPDIR to a folder with a shorter path"), "{ran:?}");
    let mut command = tenure.command(&["run", "--duty", "g/d", "--", "true"]);
    let ran = Ran::of(command.env("TMPDIR", tenure.path("none")).output().unwrap());
    assert_eq!(ran.code, Some(125), "{ran:?}");
    assert!(ran.stderr.contains("DT009: ") && ran.stderr.contains("/none/"), "{ran:?}");
    // Nothing was claimed, not even created.
    assert!(!tenure.path("tenure.db").exists());
}

/// A program that gives the duty back is ended, and the next one gets the duty.
#[test]
fn a_program_can_give_its_duty_back() {
    let tenure = Tenure::new();
    let store = tenure.sqlite("tenure.db");
    let (first, api) = held(&tenure, "a", &store, &[]);
    let script = stay("b.api");
    let second = tenure.start("b", &run_on(&store, &[], &script));
    tenure.said(&second, "\"event\":\"standby\"");
    let mut events = api.connect().unwrap();
    let response = events.send("GET", "/events", &[], b"").unwrap();
    assert_eq!(response.header("content-type"), Some("text/event-stream"));
    assert_eq!(api.post("/release").result(), (202, "ok".to_owned()));
    assert_eq!(super::socket(&tenure, "b").get("/hold").json()["epoch"], 2);
    let mut text = String::new();
    std::io::Read::read_to_string(&mut events.0, &mut text).unwrap();
    let named = text.lines().filter(|line| line.starts_with("event: "));
    let named: Vec<&str> = named.map(|line| line.trim_start_matches("event: ")).collect();
    // The chunks of the stream have their lengths before them.
    assert_eq!(named[..2], ["hold", "draining"], "{text}");
    for running in [first, second] {
        running.signal(Signal::TERM);
        running.exits(128 + 15);
    }
}

/// The checkpoint of a signed store is signed, whoever writes it.
#[test]
fn what_a_program_stores_is_signed() {
    let Some(server) = service(TEST_POSTGRES) else { return };
    let (tenure, store) = (Tenure::new(), format!("{server}?schema={}", name()));
    let key = "5e".repeat(32);
    std::fs::write(tenure.path("keys"), format!("k1 sign {key}\n")).unwrap();
    let signing = ["--signing", "require", "--signing-keys-file", "keys"];
    let (running, api) = held(&tenure, "a", &store, &signing);
    assert_eq!(api.put(&[], "{}").result(), (200, "stored".to_owned()));
    running.signal(Signal::TERM);
    running.exits(128 + 15);
    let verify = [&["checkpoint", "verify", "g/d", "--store", &store], &signing[..]].concat();
    assert!(tenure.run(&verify).ok().contains("good (k1)"));
    std::fs::write(tenure.path("one"), "1").unwrap();
    let put = [&["checkpoint", "put", "g/d", "one", "--store", &store], &signing[..]].concat();
    tenure.run(&put).ok();
    assert!(tenure.run(&verify).ok().contains("good (k1)"));
}
