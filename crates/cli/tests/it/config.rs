//! `tenure.toml`, published variables, and `tenure config`.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;
use testkit::{TEST_REDIS, service};

use crate::stores::name;
use crate::tenure::{Ran, Tenure};

fn with_file(text: &str) -> Tenure {
    let tenure = Tenure::new();
    fs::write(tenure.path("tenure.toml"), text).unwrap();
    tenure
}

fn run_with(tenure: &Tenure, variables: &[(&str, &str)], words: &[&str]) -> Ran {
    Ran::of(tenure.command(words).envs(variables.iter().copied()).output().unwrap())
}

/// Returns value and source of each option, as `tenure config` prints them.
#[track_caller]
fn settings(ran: Ran) -> BTreeMap<String, (Value, String)> {
    let report = ran.json();
    let settings = report["settings"].as_array().unwrap().iter();
    let entry = |setting: &Value| {
        let text = |key: &str| setting[key].as_str().unwrap().to_owned();
        let key = format!("{} {}", text("command"), text("option")).trim().to_owned();
        (key, (setting["value"].clone(), text("source")))
    };
    settings.map(entry).collect()
}

#[track_caller]
fn shows(tenure: &Tenure, variables: &[(&str, &str)], words: &[&str], expected: [&str; 3]) {
    let words = [&["config", "--json"], words].concat();
    let ran = run_with(tenure, variables, &words);
    let [option, value, source] = expected;
    let found = settings(ran)[option].clone();
    let text = found.0.as_str().map_or_else(|| found.0.to_string(), str::to_owned);
    assert_eq!((text.as_str(), found.1.as_str()), (value, source), "{words:?} {variables:?}");
}

/// Returns the commands that `--help` lists, with those below them.
fn commands(tenure: &Tenure, above: &[String]) -> Vec<Vec<String>> {
    let words: Vec<&str> = above.iter().map(String::as_str).chain(["--help"]).collect();
    let help = tenure.run(&words).ok();
    let (_, list) = help.split_once("Commands:\n").unwrap_or_default();
    let names = list.lines().take_while(|line| !line.is_empty());
    let names = names.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    let below = names.flat_map(|name| {
        let command = [above, &[name.to_owned()]].concat();
        [vec![command.clone()], commands(tenure, &command)].concat()
    });
    below.collect()
}

/// An option in the file.
#[derive(Debug)]
struct Entry {
    command: Vec<String>,
    option: String,
    value: String,
    /// Number of values that were tried.
    tried: usize,
}

const VALUES: &[&str] =
    &["true", "a/b", "1", "30s", "a:1", "sqlite:a.db", "list:a", "2m,10m", "kept"];

impl Entry {
    /// Takes a value that the problem names, or else the next of the list.
    fn change(&mut self, problem: &str) {
        let named =
            problem.split_once("it takes ").map(|(_, list)| list.split(',').next().unwrap());
        let next = || VALUES.get(self.tried).unwrap_or_else(|| panic!("add a value: {self:?}"));
        self.value = named.unwrap_or_else(|| next()).to_owned();
        self.tried += 1;
    }
}

/// Writes a file with all entries; returns the entry of each line.
fn write(tenure: &Tenure, entries: &[Entry]) -> BTreeMap<usize, usize> {
    let (mut text, mut lines) = (String::new(), BTreeMap::new());
    let mut above = &Vec::new();
    for (n, Entry { command, option, value, .. }) in entries.iter().enumerate() {
        if command != above {
            text += &format!("[{}]\n", command.join("."));
            above = command;
        }
        let quote = if value == "true" { "" } else { "'" };
        text += &format!("{option} = {quote}{value}{quote}\n");
        lines.insert(text.lines().count(), n);
    }
    fs::write(tenure.path("tenure.toml"), text).unwrap();
    lines
}

/// The options are those that the program lists, so that no new one is forgotten.
#[test]
fn every_option_of_every_command_can_be_set() {
    let tenure = Tenure::new();
    let apart = ["completions", "config", "errors", "man"];
    let mut commands = commands(&tenure, &[]);
    commands.retain(|command| !apart.contains(&command[0].as_str()));
    assert!(commands.len() > 40 && commands.contains(&vec!["bucket".into(), "next".into()]));
    let mut entries = Vec::new();
    for command in &commands {
        let words = command.iter().map(String::as_str);
        let words: Vec<&str> = ["config", "--json"].into_iter().chain(words).collect();
        // `--json` is given here.
        let options = settings(tenure.run(&words)).into_keys().filter(|option| option != "json");
        entries.extend(options.map(|option| Entry {
            command: command.clone(),
            option,
            value: "true".to_owned(),
            tried: 1,
        }));
    }
    let lines = loop {
        let lines = write(&tenure, &entries);
        let ran = tenure.run(&["config", "check", "tenure.toml", "--json"]);
        let report: Value = serde_json::from_str(&ran.stdout).unwrap();
        let problems = report["problems"].as_array().unwrap();
        if problems.is_empty() {
            break lines;
        }
        for problem in problems {
            let line = usize::try_from(problem["line"].as_u64().unwrap()).unwrap();
            entries[lines[&line]].change(problem["problem"].as_str().unwrap());
        }
    };
    let found = settings(tenure.run(&["config", "--json"]));
    for (line, n) in lines {
        let Entry { command, option, value, .. } = &entries[n];
        let key = format!("{} {option}", command.join(" "));
        let (shown, source) = &found[&key];
        assert_eq!(*source, format!("tenure.toml:{line}"), "{key}");
        assert_eq!(shown.to_string().trim_matches(['[', ']', '"']), value, "{key}");
    }
}

#[test]
fn flags_override_the_environment_which_overrides_the_file() {
    let tenure = with_file(
        "store = 'sqlite:file.db'\n[run]\nttl = '20s'\nsigning = 'write'\nisolate = true\n",
    );
    let run = &["run"][..];
    shows(&tenure, &[], run, ["ttl", "20s", "tenure.toml:3"]);
    shows(&tenure, &[], run, ["drain", "null", "default"]);
    shows(&tenure, &[], &["poll"], ["ttl", "30s", "default"]);
    let variable = [("TENURE_SIGNING", "require")];
    shows(&tenure, &[], run, ["signing", "write", "tenure.toml:4"]);
    shows(&tenure, &variable, run, ["signing", "require", "env TENURE_SIGNING"]);
    shows(&tenure, &variable, &["run", "--signing", "off"], ["signing", "off", "flag"]);
    shows(&tenure, &[], run, ["isolate", "true", "tenure.toml:5"]);
    shows(&tenure, &[], &["run", "--isolate=false"], ["isolate", "false", "flag"]);

    // The store shows which value is in force.
    let store = |variables: &[(&str, &str)], words: &[&str]| {
        let words = [&["migrate", "--json"], words].concat();
        run_with(&tenure, variables, &words).json()["store"].as_str().unwrap().to_owned()
    };
    assert_eq!(store(&[], &[]), "sqlite:file.db");
    assert_eq!(store(&[("TENURE_STORE", "sqlite:env.db")], &[]), "sqlite:env.db");
    let flag = ["--store", "sqlite:flag.db"];
    assert_eq!(store(&[("TENURE_STORE", "sqlite:env.db")], &flag), "sqlite:flag.db");
}

/// The file takes part in the rules between options.
#[test]
fn values_of_the_file_count_as_given() {
    let tenure = with_file("[run]\nduty = 'a/b'\nisolate = true\n[migrate]\njson = true");
    tenure.run(&["run", "--isolate=false", "--", "touch", "ran"]).ok();
    assert!(tenure.path("ran").exists(), "the duty is required, and the file has it");
    assert!(tenure.run(&["migrate"]).json()["store"].is_string());
    assert!(tenure.run(&["migrate", "--json=false"]).ok().starts_with("sqlite:"));

    let tenure = with_file("[serve]\ntls-cert = 'cert.pem'\n");
    let ran = tenure.run(&["serve"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let note = "from the file: --tls-cert <PATH> (tenure.toml:2)";
    assert!(ran.stderr.contains("--tls-key <PATH>") && ran.stderr.contains(note), "{ran:?}");
    let ran = tenure.run(&["serve", "--tls-key", "no.pem"]);
    ran.refused("DT009");

    // A given argument that excludes an option overrides the file.
    let tenure =
        with_file("store = 'sqlite:a.db'\n[drain]\ntimeout = '5s'\n[bucket.next]\nttl = '20s'\n");
    tenure.run(&["migrate"]).ok();
    tenure.run(&["drain", "g", "host", "--undo"]).refused("DT010");
    // Values for a duty have no effect without one; on the command line they are refused.
    fs::write(tenure.path("c.json"), "{}").unwrap();
    let next = ["bucket", "next", "--config", "c.json", "--state", "s.json"];
    tenure.run(&next).ok();
    assert_eq!(tenure.run(&[&next[..], &["--ttl", "20s"]].concat()).code, Some(2));
    // Without a command there is nothing to add options to.
    assert!(tenure.run(&[]).stderr.contains("Commands:"));
}

#[test]
fn the_file_is_found() {
    let tenure = with_file("store = 'sqlite:here.db'");
    fs::write(tenure.path("other.toml"), "store = 'sqlite:other.db'").unwrap();
    let other = ["store", "sqlite:other.db", "other.toml:1"];
    shows(&tenure, &[], &[], ["store", "sqlite:here.db", "tenure.toml:1"]);
    shows(&tenure, &[], &["--config", "other.toml"], other);
    shows(&tenure, &[("TENURE_CONFIG", "other.toml")], &[], other);
    shows(&tenure, &[("TENURE_CONFIG", "none.toml")], &["--config", "other.toml"], other);
    shows(&tenure, &[("TENURE_CONFIG", "")], &[], ["store", "sqlite:tenure.db", "default"]);
    shows(&tenure, &[("TENURE_CONFIG", "none.toml")], &["ls", "--config", "other.toml"], other);

    // A file that is named has to exist, and any file has to be one.
    let ran = tenure.run(&["ls", "--config", "none.toml"]);
    ran.refused("CF001");
    assert!(ran.stderr.contains("cannot read none.toml: No such file"), "{ran:?}");
    run_with(&tenure, &[("TENURE_CONFIG", "none.toml")], &["ls"]).refused("CF001");
    let ran = tenure.run(&["ls", "--config", "postgres://me:s3cret@h/db"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    ran.hides("s3cret");
    fs::remove_file(tenure.path("tenure.toml")).unwrap();
    fs::create_dir(tenure.path("tenure.toml")).unwrap();
    tenure.run(&["ls"]).refused("CF001");
    tenure.run(&["ls", "--config", ""]).refused("ST015");
    tenure.run(&["ls", "--config", "/dev/null"]).refused("ST015");
    // A pipe is not waited for.
    tenure.command_of("mkfifo", &["pipe"]).status().unwrap();
    let ran = tenure.run(&["ls", "--config", "pipe"]);
    assert!(ran.stderr.contains("cannot read pipe: it is not a regular file"), "{ran:?}");
    ran.refused("CF001");
    // `bucket next` has an option of that name.
    let bucket = ["--config", "other.toml", "bucket", "next", "--config", "c.json", "--state", "s"];
    tenure.run(&bucket).refused("BK002");
}

#[test]
fn the_documented_file_is_valid() {
    let page = include_str!("../../../../docs/reference/configuration.md");
    let (_, rest) = page.split_once("```toml\n").unwrap();
    let tenure = with_file(rest.split_once("```").unwrap().0);
    tenure.run(&["config", "check", "tenure.toml"]).ok();
}

const BAD: &str = "\
stroe = 'sqlite:a.db'
ttl = '20s'
store = 'postgres://me:s3cret/@h/db'
[run]
tll = '20s'
ttl = 20
weight = 'heavy'
zone = ['eu', 'us']
isolate = 'maybe'
log-level = 'loud'
require = 'sw_live_s3cretaaaaaaaaaaaaaaaaaaaaaaaaaaa'
[bcuket.next]
[bucket.next]
config = 1
[serve]
allowed-host = [['a']]
[guard]
";

#[test]
fn every_problem_has_its_line() {
    let tenure = with_file(BAD);
    let ran = tenure.run(&["config", "check", "tenure.toml"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let expected = [
        "1: unknown key \"stroe\": did you mean store?",
        "2: unknown key \"ttl\": it is a key of [run], [poll], [cron]",
        "3: store = (not shown): write @ as %40",
        "5: unknown key \"tll\" in [run]: did you mean ttl?",
        "6: ttl = \"20\": a time is a number and a unit",
        "7: weight = \"heavy\": invalid digit",
        "8: zone = \"eu\", \"us\": it takes one value",
        "9: isolate = \"maybe\": it takes true, false",
        "10: log-level = \"loud\": it takes error, warn, info, debug",
        "11: require = (not shown): it takes best-effort",
        "12: unknown table \"bcuket\": did you mean bucket?",
        "16: allowed-host: an array cannot be nested",
        "17: unknown table \"guard\"",
    ];
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{ran:?}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(&format!("tenure.toml:{expected}")), "{line}");
    }
    assert!(ran.stderr.starts_with("CF001: "), "{ran:?}");
    assert!(ran.stderr.contains("tenure.toml has 13 problems"), "{ran:?}");
    ran.hides("s3cret");
    let json = tenure.run(&["config", "check", "tenure.toml", "--json"]);
    json.hides("s3cret");
    let report: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(report["problems"].as_array().unwrap().len(), 13);

    // Every command that reads the file checks all of it, before it does anything.
    for words in [&["ls"][..], &["run", "--duty", "a/b", "--", "touch", "ran"], &["config"]] {
        let ran = tenure.run(words);
        ran.refused("CF001");
        assert!(ran.stderr.contains("tenure.toml:1: unknown key \"stroe\""), "{ran:?}");
        assert!(ran.stderr.contains("(and 12 more)"), "{ran:?}");
    }
    assert!(!tenure.path("ran").exists() && !tenure.path("tenure.db").exists());
    // Those that explain it do not read it.
    tenure.run(&["errors", "CF001"]).ok();
    tenure.run(&["run", "--help"]).ok();
    // The environment has no part in it.
    fs::write(tenure.path("tenure.toml"), "[serve]\nlisten = 8420").unwrap();
    let variable = [("TENURE_LISTEN", "nowhere"), ("TENURE_SIGNING", "s3cret")];
    run_with(&tenure, &variable, &["config", "check", "tenure.toml"]).ok();

    for (text, problem) in [
        ("a = \n[run\nb = 'c'\n", "tenure.toml:1: string values must be quoted"),
        ("[run]\nttl = '1s'\nttl = '2s'\n", "tenure.toml:3: duplicate key"),
        ("store = s3cret", "tenure.toml:1: "),
        ("\n\nstore = 's3cret\n", "tenure.toml:3: "),
    ] {
        fs::write(tenure.path("tenure.toml"), text).unwrap();
        let ran = tenure.run(&["ls"]);
        ran.refused("CF001");
        assert!(ran.stderr.contains(problem), "{ran:?}");
        ran.hides("s3cret");
    }
    fs::write(tenure.path("tenure.toml"), [0xff]).unwrap();
    tenure.run(&["ls"]).refused("CF001");
}

#[test]
fn secrets_are_not_shown() {
    let tenure = with_file(
        "store = 'postgres://me:s3cret@h/db'\n[poll]\ntargets = 'redis://:s3cret@h/0?pattern=a*'\n\
         [beat]\nmessage = 'sw_live_s3cretaaaaaaaaaaaaaaaaaaaaaaaaaaa'\n",
    );
    let file = tenure.path("tenure.toml");
    let warning = "warning: tenure.toml:1: store has a secret, and every user can read the file";
    for (mode, warns) in [(0o644, true), (0o640, false), (0o600, false)] {
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        for words in [
            &["config"][..],
            &["config", "--json"],
            &["config", "poll"],
            &["config", "check", "tenure.toml"],
        ] {
            let ran = tenure.run(words);
            assert_eq!(ran.stderr.contains(warning), warns, "{mode:o} {ran:?}");
            ran.hides("s3cret");
            ran.ok();
        }
    }
    shows(&tenure, &[], &[], ["store", "postgres://me@h/db", "tenure.toml:1"]);
    shows(&tenure, &[], &["beat"], ["message", "(not shown)", "tenure.toml:5"]);
    // An error of another option does not repeat them either.
    for words in [&["poll", "--jobs", "x"][..], &["poll", "--store"], &["beat", "--state", "x"]] {
        let ran = tenure.run(words);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        ran.hides("s3cret");
    }
    // A URL without a password is no secret.
    fs::write(&file, "store = 'redis://h:6379/0'").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    let ran = tenure.run(&["config"]);
    assert_eq!(ran.stderr, "", "{ran:?}");
}

#[test]
fn published_variables_are_defaults() {
    let tenure = with_file("[run]\nttl = '20s'\n[serve]\nlisten = 8421\n");
    let run = &["run"][..];
    let ttl = [("CONNECTOR_LEASE_TTL_S", "2.5")];
    shows(&tenure, &ttl, run, ["ttl", "2.5s", "env CONNECTOR_LEASE_TTL_S"]);
    shows(&tenure, &ttl, &["run", "--ttl", "3s"], ["ttl", "3s", "flag"]);
    shows(&tenure, &[("CONNECTOR_LEASE_TTL_S", "")], run, ["ttl", "20s", "tenure.toml:2"]);
    let every = [("CONNECTOR_POLL_INTERVAL_S", "1.0")];
    shows(&tenure, &every, &["poll"], ["every", "1.0s", "env CONNECTOR_POLL_INTERVAL_S"]);
    shows(&tenure, &every, &["top"], ["every", "1s", "default"]);
    let port = [("PORT", "8081")];
    shows(&tenure, &port, &["serve"], ["listen", "0.0.0.0:8081", "env PORT"]);
    shows(&tenure, &port, run, ["listen", "null", "default"]);
    let listen = [("PORT", "8081"), ("TENURE_LISTEN", "8082")];
    shows(&tenure, &listen, &["serve"], ["listen", "8082", "env TENURE_LISTEN"]);
    for (value, level) in [("DEBUG", "debug"), ("Warning", "warn"), ("fatal", "error")] {
        shows(&tenure, &[("LOG_LEVEL", value)], run, ["log-level", level, "env LOG_LEVEL"]);
    }
    for (value, format) in [("JSON", "json"), ("text", "human")] {
        for command in [run, &["serve"]] {
            shows(&tenure, &[("LOG_FORMAT", value)], command, ["log", format, "env LOG_FORMAT"]);
        }
    }

    // They are in force, and not only shown.
    let holds = ["run", "--duty", "a/b", "--", "true"];
    let quiet = [("LOG_LEVEL", "error"), ("CONNECTOR_LEASE_TTL_S", "1.5")];
    let ran = run_with(&tenure, &quiet, &holds);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let ran = run_with(&tenure, &[("CONNECTOR_LEASE_TTL_S", "0.5")], &holds);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("--ttl 500ms is outside the limits"), "{ran:?}");
    let ran = run_with(&tenure, &[("LOG_FORMAT", "console")], &holds);
    assert!(!ran.stderr.is_empty() && !ran.stderr.contains('{'), "{ran:?}");
    // A port of a container is one on all addresses.
    let ran = run_with(&tenure, &port, &["serve"]);
    assert!(ran.stderr.starts_with("SW001: "), "{ran:?}");

    // Others may read LOG_LEVEL as well, and know more levels. The rest is Tenure's to read.
    let ran = run_with(&tenure, &[("LOG_LEVEL", "chatty")], &holds);
    assert!(ran.stderr.starts_with("warning: LOG_LEVEL is \"chatty\""), "{ran:?}");
    ran.ok();
    for (variable, value, command) in [
        ("CONNECTOR_LEASE_TTL_S", "30s", &holds[..]),
        ("CONNECTOR_LEASE_TTL_S", "-1", &holds),
        ("CONNECTOR_POLL_INTERVAL_S", "soon", &["poll", "--targets", "list:a", "--", "true"]),
        ("PORT", "0", &["serve"]),
        ("PORT", "http", &["serve"]),
    ] {
        let ran = run_with(&tenure, &[(variable, value)], command);
        ran.refused("CF002");
        assert!(ran.stderr.contains(&format!("{variable} is \"{value}\": it takes")), "{ran:?}");
    }
    run_with(&tenure, &[("CONNECTOR_LEASE_TTL_S", "30s")], &["bucket", "k", "d", "3"]).ok();
}

const BACKEND: &str = "CONNECTOR_COORDINATION_BACKEND";

#[test]
fn the_published_backend_is_the_store() {
    let Some(url) = service(TEST_REDIS) else { return };
    let tenure = Tenure::new();
    let duty = format!("{}/one", name());
    let group = duty.split('/').next().unwrap();
    let (host, port) = url.strip_prefix("redis://").unwrap().split_once(':').unwrap();
    let (port, number) = port.split_once('/').unwrap();
    let kubernetes = format!("tcp://{host}:{port}");
    for variables in [
        &[(BACKEND, "redis"), ("REDIS_URL", &url)][..],
        &[(BACKEND, "Redis"), ("REDIS_HOST", host), ("REDIS_PORT", port), ("REDIS_DB", number)],
        &[(BACKEND, "redis"), ("REDIS_HOST", host), ("REDIS_PORT", &kubernetes)],
    ] {
        run_with(&tenure, variables, &["run", "--duty", &duty, "--", "true"]).ok();
    }
    let shown = tenure.run(&["ls", group, "--store", &url, "--json"]).json();
    assert!(shown["groups"][0]["duties"][0]["epoch"].is_u64(), "{shown}");
    assert!(!tenure.path("tenure.db").exists());
}

#[test]
fn the_backend_has_to_fit_its_address() {
    let tenure = Tenure::new();
    let secret = "redis://:s3cret@h/0";
    for (variables, problem) in [
        (
            &[(BACKEND, "consul")][..],
            "is \"consul\": it takes redis, postgres, etcd, sqlite or file",
        ),
        (&[(BACKEND, "redis")], "is redis, which needs REDIS_URL or REDIS_HOST"),
        (&[(BACKEND, "etcd"), ("REDIS_URL", secret)], "is etcd, which needs ETCD_ENDPOINTS"),
        (
            &[(BACKEND, "postgres"), ("DATABASE_URL", secret)],
            "DATABASE_URL is not a postgres:// URL",
        ),
        (&[(BACKEND, "file")], "is file, which needs CONNECTOR_CURSOR_PATH"),
    ] {
        let ran = run_with(&tenure, variables, &["ls"]);
        ran.refused("CF002");
        assert!(ran.stderr.contains(problem), "{ran:?}");
        ran.hides("s3cret");
        // A connector's environment does not keep it from commands without a store.
        run_with(&tenure, variables, &["bucket", "k", "d", "3"]).ok();
        let ran = run_with(&tenure, variables, &["ls", "--store", "sqlite:none.db"]);
        assert!(ran.stderr.contains("ST015: "), "{ran:?}");
    }
    // A store that is given wins, and the contradiction is named.
    let variables = [(BACKEND, "redis"), ("REDIS_URL", secret), ("TENURE_STORE", "sqlite:a.db")];
    let ran = run_with(&tenure, &variables, &["migrate"]);
    let warning = "warning: CONNECTOR_COORDINATION_BACKEND is \"redis\" and has no effect: the \
                   store is given, and it is \"sqlite\"\n";
    assert_eq!(ran.stderr, warning, "{ran:?}");
    ran.ok();
    // REDIS_URL alone is the address of some Redis, not of the store.
    shows(&tenure, &[("REDIS_URL", secret)], &[], ["store", "sqlite:tenure.db", "default"]);
    let cursor = [(BACKEND, "file"), ("CONNECTOR_CURSOR_PATH", "cursor.json")];
    shows(&tenure, &cursor, &[], ["store", "file:cursor.json", "env CONNECTOR_CURSOR_PATH"]);
    let database = [(BACKEND, "postgres"), ("DATABASE_URL", "postgres://me:s3cret@h/db")];
    shows(&tenure, &database, &[], ["store", "postgres://me@h/db", "env DATABASE_URL"]);
    // The file comes after the environment.
    fs::write(tenure.path("tenure.toml"), "store = 'sqlite:b.db'").unwrap();
    shows(&tenure, &database, &[], ["store", "postgres://me@h/db", "env DATABASE_URL"]);
}
