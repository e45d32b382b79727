//! `tenure drain`, `pause`, `pin` and `evict`, with real processes.

use rustix::process::Signal;
use serde_json::{Value, json};
use tenure_core::engine::{DrainMode, GroupConfig};
use testkit::{Proxy, RedisOptions, RedisServer, TEST_POSTGRES, TEST_REDIS, service, wait_until};

use crate::operate::{group, in_force, instance};
use crate::running::{LIMIT, STAY};
use crate::stores::name;
use crate::tenure::{Ran, Tenure, claim, join, release, with_store};

/// A group in the output of `ls --json`.
struct Seen(Value);

impl Seen {
    fn look(tenure: &Tenure, url: &str, group: &str) -> Self {
        let seen = tenure.run(&["ls", group, "--json", "--store", url]).json();
        Self(seen["groups"][0].clone())
    }

    fn members(&self) -> Vec<String> {
        let members = self.0["members"].as_array().unwrap().iter();
        members.map(|member| member["instance"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns the names of the members, sorted.
    fn names(&self) -> Vec<&str> {
        let members = self.0["members"].as_array().unwrap().iter();
        let mut names: Vec<&str> =
            members.map(|member| member["name"].as_str().unwrap_or_default()).collect();
        names.sort_unstable();
        names
    }

    /// Returns the holder of each duty; empty for a free one.
    fn holders(&self) -> Vec<String> {
        let duties = self.0["duties"].as_array().unwrap().iter();
        duties.map(|duty| duty["holder"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

#[track_caller]
fn wait(tenure: &Tenure, url: &str, group: &str, what: &str, is: impl Fn(&Seen) -> bool) -> Seen {
    let seen = wait_until(what, LIMIT, || is(&Seen::look(tenure, url, group)));
    let last = Seen::look(tenure, url, group);
    assert!(seen.is_ok(), "{what}: {}", last.0);
    last
}

/// Two instances share four targets. One is drained and gets duties again; the other is evicted.
fn drain_and_evict(url: &str) {
    let tenure = Tenure::new();
    tenure.run(&["migrate", "--store", url]).ok();
    let line = "--targets list:a,b,c,d --every 500ms --ttl 6s --timeout 1s --grace 300ms -- true";
    let words: Vec<&str> = ["poll", "--store", url].into_iter().chain(line.split(' ')).collect();
    // Both have the same default name, so one gets a number.
    let _both = ["1", "2"].map(|file| {
        let mut command = tenure.command(&words);
        command.env("POD_NAME", "web");
        tenure.start_this(file, command)
    });
    let spread = |seen: &Seen| {
        let (members, holders) = (seen.members(), seen.holders());
        seen.names() == ["web", "web_2"]
            && members.iter().all(|who| holders.iter().filter(|h| *h == who).count() == 2)
    };
    let seen = wait(&tenure, url, "poll", "both have two", spread);
    let (first, other) = (seen.members()[0].clone(), seen.members()[1].clone());

    let name = seen.0["members"][0]["name"].as_str().unwrap();
    let ran = tenure.run(&["drain", "poll", name, "--store", url, "--timeout", "50s"]);
    assert!(ran.stderr.contains(&format!("{first} is drained: it gets no more duties")), "{ran:?}");
    let handed = "2 of 2 duties handed over";
    assert!(ran.stderr.contains(&format!("\n{handed}")), "{ran:?}");
    let said = format!("{first} holds no more duties; {handed}: ");
    assert!(ran.stdout.starts_with(&said), "{ran:?}");
    ran.ok();
    let all = wait(&tenure, url, "poll", "the other has all", |seen| {
        seen.holders().iter().all(|holder| *holder == other)
    });
    assert_eq!(all.members().len(), 2, "it stays a member");
    let line = json!([{ "what": "drain", "on": first, "how": "hand-over" }]);
    assert_eq!(in_force(&tenure, url, "poll"), line);
    // Both cannot be drained. Draining the first again waits for it and writes nothing.
    let before = group(url, "poll");
    let words = |who| ["drain", "poll", who, "--store", url, "--timeout", "50s"];
    tenure.run(&words(&other)).refused("DT007");
    let json = tenure.run(&[&words(&first)[..], &["--json"]].concat()).json();
    let expected = json!({
        "dry_run": false, "group": "poll", "instance": first, "changed": false, "drained": true,
        "ended": false, "how": "hand-over", "duties": [], "pruned": [], "away": null,
    });
    assert_eq!(json, expected);
    // Even the shortest timeout is enough: the instance holds nothing.
    let short = ["drain", "poll", &first, "--store", url, "--timeout", "1ms"];
    assert_eq!(tenure.run(&[&short[..], &["--json"]].concat()).json(), expected);
    let text = tenure.run(&short).ok();
    assert!(text.starts_with(&format!("{first} holds no more duties; 0 of 0 ")), "{text}");
    assert_eq!(group(url, "poll"), before);

    let text = tenure.run(&["drain", "poll", &first, "--undo", "--store", url]).ok();
    assert_eq!(text, format!("{first} of poll gets duties again\n"));
    let json = tenure.run(&["evict", "poll", &other, "--now", "--json", "--store", url]).json();
    // The first instance may already have its share again.
    assert!(json["duties"].as_array().unwrap().len() >= 2, "{json}");
    wait(&tenure, url, "poll", "the first has all", |seen| {
        seen.members() == [&*first] && seen.holders().iter().all(|holder| *holder == first)
    });
}

#[test]
fn an_instance_is_drained_and_evicted_on_sqlite() {
    let folder = Tenure::new();
    drain_and_evict(&folder.sqlite("tenure.db"));
}

#[test]
fn an_instance_is_drained_and_evicted_on_postgres() {
    let Some(server) = service(TEST_POSTGRES) else { return };
    drain_and_evict(&format!("{server}?schema={}", name()));
}

#[test]
fn an_instance_is_drained_and_evicted_on_redis() {
    let Some(server) = service(TEST_REDIS) else { return };
    drain_and_evict(&format!("{server}?prefix={}:", name()));
}

#[test]
fn an_instance_is_drained_and_evicted_on_etcd() {
    let Some(server) = service(testkit::TEST_ETCD) else { return };
    drain_and_evict(&format!("{server}?prefix={}/", name()));
}

/// Returns the arguments to run a shell script under `demo/one`.
fn standby<'a>(options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let before = ["run", "--duty", "demo/one", "--ttl", "3s"];
    [&before[..], options, &["--", "sh", "-c", script]].concat()
}

#[test]
fn the_last_member_is_drained_by_force_only() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    let script = format!("echo >> began; {STAY}");
    let _running = tenure.start("1", &standby(&[], &script));
    tenure.lines("began", 1);
    let me = Seen::look(&tenure, &url, "demo").holders().remove(0);
    let before = group(&url, "demo");
    let words = ["drain", "demo", &me, "--timeout", "50s"];
    for words in [&words[..], &["drain", "demo", &me, "--dry-run"]] {
        let ran = tenure.run(words);
        ran.refused("DT007");
        assert!(ran.stderr.contains("no other member of demo can take the duties"), "{ran:?}");
    }
    let dry = tenure.run(&["drain", "demo", &me, "--force", "--dry-run"]).ok();
    assert_eq!(
        dry,
        format!("{me} of demo would release 1 duty, even if no other member takes duties\n")
    );
    assert_eq!(group(&url, "demo"), before);
    let json = tenure.run(&["drain", "demo", &me, "--force", "--json"]).json();
    assert_eq!(json["duties"], json!([{ "duty": "demo/one", "holder": null }]));
    assert_eq!((&json["how"], &json["drained"]), (&"anyway".into(), &true.into()));
    let text = tenure.run(&["drain", "demo", &me, "--undo", "--dry-run"]).ok();
    assert_eq!(text, format!("{me} of demo would get duties again\n"));
    tenure.run(&["drain", "demo", &me, "--undo"]).ok();
    assert_eq!(
        tenure.run(&["drain", "demo", &me, "--undo"]).ok(),
        format!("{me} of demo is not drained\n")
    );
    tenure.lines("began", 2);

    // The same process is paused and resumed.
    let text = tenure.run(&["pause", "demo"]).ok();
    assert_eq!(text, format!("group demo is paused\n{me} stops demo/one\n"));
    wait(&tenure, &url, "demo", "nobody has it", |seen| seen.holders() == [""]);
    tenure.run(&["resume", "demo"]).ok();
    tenure.lines("began", 3);
}

/// A command ignores TERM: the drain times out, then is interrupted, then the process is killed.
#[test]
fn a_drain_that_takes_too_long_stays_in_force() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    let script = format!("trap '' TERM; echo >> began; {STAY}");
    let slow = tenure.start("1", &standby(&["--drain", "300s"], &script));
    tenure.lines("began", 1);
    let me = Seen::look(&tenure, &url, "demo").holders().remove(0);
    let _next = tenure.start("2", &standby(&[], &script));
    let seen = wait(&tenure, &url, "demo", "both are there", |seen| seen.members().len() == 2);
    let other = seen.members().into_iter().find(|who| *who != me).unwrap();

    let ran = tenure.run(&["drain", "demo", &me, "--timeout", "1500ms"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(4), ""), "{ran:?}");
    let said = format!("{me} still holds demo/one; 0 of 1 duty handed over\n");
    assert!(ran.stderr.contains(&said) && ran.stderr.contains("\nDT011: "), "{ran:?}");
    assert!(ran.stderr.contains("\nkept: the drain stays in force\n"), "{ran:?}");
    let drained: GroupConfig = group(&url, "demo").1;
    assert_eq!(drained.drained, [(instance(&me), DrainMode::HandOver)].into());
    let ran = tenure.run(&["drain", "demo", &me, "--timeout", "10ms", "--json"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    let shown: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (&shown["drained"], &shown["duties"][0]["holder"]),
        (&false.into(), &me.clone().into())
    );
    let error: Value = serde_json::from_str(&ran.stderr).unwrap();
    assert_eq!(error["error"]["code"], "DT011");

    let words = ["drain", "demo", &me];
    let waiting = tenure.start("drain", &words);
    tenure.said(&waiting, "0 of 1 duty handed over");
    waiting.signal(Signal::INT);
    waiting.exits(130);
    assert!(tenure.text("drain.err").contains("interrupted: the drain stays in force; 0 of 1"));
    assert_eq!(group(&url, "demo").1, drained);

    let waiting = tenure.start("drain", &words);
    tenure.said(&waiting, "0 of 1 duty handed over");
    slow.signal(Signal::KILL);
    waiting.exits(0);
    let text = tenure.text("drain.out");
    assert_eq!(text, format!("{me} has ended; 1 of 1 duty handed over: 1 to {other}\n"));
}

/// The connection is cut while the duty is released, and then restored.
#[test]
fn a_drain_waits_for_a_store_that_is_away() {
    if service(TEST_REDIS).is_none() {
        return;
    }
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    let wire = Proxy::start(server.port()).unwrap();
    let url = format!("redis://127.0.0.1:{}", wire.port());
    let note = "tenure=1\nweight=1\nroom=100\n";
    let (session, hold) = with_store(&server.url(), async |store| {
        let a = join(&*store, "g", "a", note).await;
        join(&*store, "g", "b", note).await;
        let hold = claim(&*store, &a, "0").await;
        (a, hold)
    });
    let tenure = Tenure::new();
    let draining = tenure.start("drain", &["drain", "g", "a", "--store", &url]);
    tenure.said(&draining, "0 of 1 duty handed over\n");
    wire.cut();
    tenure.said(&draining, "\nthe store does not answer, retrying: ST0");
    with_store(&server.url(), async |store| release(&*store, &session, hold).await);
    wire.restore().unwrap();
    tenure.said(&draining, "\nthe store answers again\n1 of 1 duty handed over: 1 free\n");
    draining.exits(0);
    let said = tenure.text("drain.err");
    assert_eq!(said.matches("the store does not answer").count(), 1, "{said}");
}

#[test]
fn a_drain_that_ran_out_of_time_exits_with_4_when_its_report_cannot_be_written() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    let note = "tenure=1\nweight=1\nroom=100\n";
    with_store(&url, async |store| {
        let a = join(&*store, "g", "a", note).await;
        join(&*store, "g", "b", note).await;
        claim(&*store, &a, "0").await;
    });
    let line = "exec \"$0\" drain g a --json --timeout 1ms > /dev/full";
    let program = env!("CARGO_BIN_EXE_tenure");
    let ran = Ran::of(tenure.command_of("sh", &["-c", line, program]).output().unwrap());
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(ran.stderr.contains("DT009"), "{ran:?}");
}

/// The server accepts requests but does not answer: the last progress is reported as such.
#[test]
fn a_drain_says_that_a_store_does_not_answer() {
    if service(TEST_REDIS).is_none() {
        return;
    }
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    let url = server.url();
    let note = "tenure=1\nweight=1\nroom=100\n";
    with_store(&url, async |store| {
        let a = join(&*store, "g", "a", note).await;
        join(&*store, "g", "b", note).await;
        claim(&*store, &a, "0").await;
    });
    let tenure = Tenure::new();
    let words = ["drain", "g", "a", "--store", &url];
    let patient = tenure.start("patient", &words);
    tenure.said(&patient, "0 of 1 duty handed over\n");
    // The timeout has to be long enough only for the first line.
    let limit = [&words[..], &["--timeout", "10s"]].concat();
    let limited = tenure.start("limited", &limit);
    tenure.said(&limited, "0 of 1 duty handed over\n");
    server.pause().unwrap();
    limited.exits(4);
    let said = tenure.text("limited.err");
    let last = "; when it answered last, a held g/0; 0 of 1 duty handed over\n";
    assert!(said.contains("\nST002: ") && said.contains(last), "{said}");
    assert!(
        said.contains("\nkept: the drain stays in force\n") && !said.contains("DT011"),
        "{said}"
    );
    tenure.said(&patient, "\nthe store does not answer, retrying: ST002: ");
    patient.signal(Signal::INT);
    patient.exits(130);
    let said = tenure.text("patient.err");
    assert!(
        said.contains("0 of 1 duty handed over when the store answered last (ST002: "),
        "{said}"
    );
    // A command that starts now fails within a bounded time.
    let ran = tenure.run(&words);
    ran.refused("ST002");
    server.resume().unwrap();
}

/// A pin moves the duty.
#[test]
fn a_pinned_duty_moves() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    let script = format!("echo >> began; {STAY}");
    let _one = tenure.start("1", &standby(&[], &script));
    tenure.lines("began", 1);
    let _two = tenure.start("2", &standby(&["--name", "second"], &script));
    let seen = wait(&tenure, &url, "demo", "both are there", |seen| seen.members().len() == 2);
    let me = seen.holders().remove(0);
    let other = seen.members().into_iter().find(|who| *who != me).unwrap();
    let text = tenure.run(&["pin", "demo/one", "--name", "second"]).ok();
    assert_eq!(text, format!("demo/one is pinned to name:second\n{me} hands it over\n"));
    wait(&tenure, &url, "demo", "it has moved", |seen| seen.holders() == [&*other]);
    tenure.lines("began", 2);
}
