//! Names of instances: defaults, numbers, and operations by name, host or the beginning of an id.

use std::collections::BTreeMap;

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::wait_until;

use crate::operate::{group, in_force};
use crate::running::{LIMIT, Running};
use crate::tenure::{Ran, Tenure, claim, join, with_store};

const WEB_1: &str = "web-1-1736598400000000001-a1b2c3d4";
const WEB_1_AGAIN: &str = "web-1-1736598400000000002-b1b2c3d4";
const WEB_2: &str = "web-2-1736598400000000003-c1b2c3d4";

/// Starts a poller with variables in its environment.
fn start(tenure: &Tenure, file: &str, options: &[&str], variables: &[(&str, &str)]) -> Running {
    let targets = ["--targets", "list:a,b", "--every", "500ms", "--timeout", "900ms"];
    let rest = ["--ttl", "4s", "--grace", "300ms", "--", "true"];
    let mut command = tenure.command(&[&["poll"], &targets[..], options, &rest].concat());
    for name in ["POD_NAME", "HOSTNAME"] {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied());
    tenure.start_this(file, command)
}

/// Returns the instance of each name in the group `poll`; waits until the names are these.
#[track_caller]
fn wait_for_names(tenure: &Tenure, names: &[&str]) -> BTreeMap<String, String> {
    let mut seen = Vec::new();
    let mut look = || {
        let Ok(json) = serde_json::from_str::<Value>(&tenure.run(&["ls", "poll", "--json"]).stdout)
        else {
            return false;
        };
        let members = json["groups"][0]["members"].as_array().unwrap().clone();
        let pair = |member: &Value| {
            let text = |key: &str| member[key].as_str().unwrap_or_default().to_owned();
            (text("name"), text("instance"))
        };
        seen = members.iter().map(pair).collect();
        seen.sort();
        seen.iter().map(|(name, _)| name).eq(names)
    };
    let found = wait_until("the names", LIMIT, &mut look);
    assert!(found.is_ok(), "{names:?} are not {seen:?}");
    seen.into_iter().collect()
}

#[track_caller]
fn wait_for_holder(tenure: &Tenure, duty: &str, instance: &str) {
    let mut last = Value::Null;
    let held = wait_until("the holder", LIMIT, || {
        let text = tenure.run(&["explain", duty, "--json"]).stdout;
        last = serde_json::from_str::<Value>(&text).unwrap_or_default()["holder"].clone();
        last == *instance
    });
    assert!(held.is_ok(), "{last} holds {duty}, not {instance}");
}

#[test]
fn two_processes_with_the_same_default_name_have_two_names() {
    let tenure = Tenure::new();
    tenure.run(&["migrate"]).ok();
    let pod = [("POD_NAME", "web"), ("HOSTNAME", "other")];
    // They start at the same time, and may read the group before the other has joined.
    let mut both = ["1", "2"].map(|file| (file, start(&tenure, file, &[], &pod)));
    let names = wait_for_names(&tenure, &["web", "web_2"]);
    // A pin by name means the member that has exactly this name.
    tenure.run(&["pin", "poll/a", "--name", "web"]).ok();
    wait_for_holder(&tenure, "poll/a", &names["web"]);
    tenure.run(&["pin", "poll/a", "--name", "web_2", "--replace"]).ok();
    wait_for_holder(&tenure, "poll/a", &names["web_2"]);
    tenure.run(&["pin", "poll/a", "--name", "web", "--replace"]).ok();
    // The name stays with the one that lives: after its session has expired, the other has it.
    let is_web = |file: &str| {
        let log = tenure.text(&format!("{file}.err"));
        log.lines().any(|line| line.contains("joined") && line.contains(&names["web"]))
    };
    let (_, web) = both.iter_mut().find(|(file, _)| is_web(file)).unwrap();
    web.signal(Signal::KILL);
    let left = wait_for_names(&tenure, &["web"]);
    assert_eq!(left["web"], names["web_2"]);
    wait_for_holder(&tenure, "poll/a", &left["web"]);
    // A third one gets the number again; a name that is given is kept as it is.
    let _third = start(&tenure, "3", &[], &pod);
    let with_third = wait_for_names(&tenure, &["web", "web_2"]);
    assert_eq!(with_third["web"], left["web"]);
    let _given = start(&tenure, "4", &["--name", "web"], &[]);
    wait_for_names(&tenure, &["web", "web", "web_2"]);
}

#[test]
fn a_default_name_is_that_of_the_pod_then_the_host() {
    let tenure = Tenure::new();
    tenure.run(&["migrate"]).ok();
    let uname = rustix::system::uname();
    let kernel = uname.nodename().to_str().unwrap();
    let long = "x".repeat(125);
    let mut names = Vec::new();
    let mut running = Vec::new();
    for (n, (variables, name)) in [
        (&[("POD_NAME", "pod"), ("HOSTNAME", "host")][..], "pod"),
        (&[("POD_NAME", ""), ("HOSTNAME", "host")], "host"),
        (&[("POD_NAME", &long), ("HOSTNAME", "a\nb")], kernel),
    ]
    .into_iter()
    .enumerate()
    {
        running.push(start(&tenure, &n.to_string(), &[], variables));
        names.push(name);
    }
    names.sort_unstable();
    wait_for_names(&tenure, &names);
}

/// Returns the note of a member with this name.
fn note(name: &str) -> String {
    format!("tenure=1\nweight=1\nroom=9\nname={name}\nview=0\n")
}

/// Creates two groups: two members on the host `web-1` and one on `web-2` in each; in `mail` the
/// second is another process than in `poll`.
fn prepare(url: &str) {
    with_store(url, async |store| {
        for group in ["mail", "poll"] {
            join(&*store, group, WEB_2, &note("web-2")).await;
            join(&*store, group, WEB_1, &note("web-1")).await;
        }
        join(&*store, "poll", WEB_1_AGAIN, &note("web-1_2")).await;
        join(&*store, "jobs", "one-1", &note("twin")).await;
        join(&*store, "jobs", "two-2", &note("twin")).await;
    });
}

#[test]
fn an_instance_is_given_by_its_name_its_host_or_a_part_of_its_id() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    for word in [WEB_2, "web-2", "web-2-17"] {
        let text = tenure.run(&["cordon", "poll", word]).ok();
        assert!(text.starts_with(&format!("{WEB_2} of poll is cordoned")), "{text}");
        tenure.run(&["cordon", "poll", word, "--undo"]).ok();
        let text = tenure.run(&["weight", "poll", word, "3", "--dry-run"]).ok();
        assert!(text.starts_with(&format!("{WEB_2} of poll would have weight 3")), "{text}");
        let json = tenure.run(&["drain", "poll", word, "--json", "--timeout", "50s"]).json();
        assert_eq!((&json["instance"], &json["group"]), (&WEB_2.into(), &"poll".into()));
        tenure.run(&["drain", "poll", word, "--undo"]).ok();
        let json = tenure.run(&["evict", "poll", word, "--json", "--dry-run"]).json();
        assert_eq!((&json["instance"], &json["group"]), (&WEB_2.into(), &"poll".into()));
        let json = tenure.run(&["plan", "poll", "--leave", word, "--json"]).json();
        assert_eq!(json["changes"]["leave"], json!([WEB_2]));
        let weight = format!("{word}=2");
        let json = tenure.run(&["plan", "poll", "--weight", &weight, "--json"]).json();
        assert_eq!(json["changes"]["weight"], json!({ WEB_2: 2 }));
    }
    let both = ["--weight", "web-2=2", "--weight", "web-2-17=3"];
    tenure.run(&[&["plan", "poll"], &both[..]].concat()).refused("DT012");
    // The name of one member is the host of two.
    let text = tenure.run(&["evict", "poll", "web-1", "--dry-run"]).ok();
    assert!(text.starts_with(&format!("{WEB_1} of poll would be evicted")), "{text}");
    // A member that would join is none yet, and its word is not looked up.
    let json = tenure.run(&["plan", "poll", "--join", "web-1", "--json"]).json();
    assert_eq!(json["changes"]["join"], json!(["web-1"]));

    with_store(&url, async |store| {
        let session = join(&*store, "solo", WEB_2, &note("web-2")).await;
        claim(&*store, &session, "a").await;
    });
    let text = tenure.run(&["pin", "solo/a", "web-2"]).ok();
    assert_eq!(text, format!("solo/a is pinned to instance:{WEB_2}\n"));
    let json = tenure.run(&["explain", "solo/a", "web-2", "--json"]).json();
    assert_eq!(
        (json["members"].as_array().unwrap().len(), &json["members"][0]["name"]),
        (1, &"web-2".into())
    );
    tenure.run(&["explain", "solo/a", "web-1"]).refused("DT010");
    // Each duty that it holds, in whichever group.
    let json = tenure.run(&["explain", "--all-groups", "web-2", "--json"]).json();
    let explained = json["explanations"].as_array().unwrap();
    assert_eq!((explained.len(), &json["not_explained"]), (1, &0.into()), "{json}");
    assert_eq!(explained[0]["duty"], "solo/a");
    assert_eq!(explained[0]["members"].as_array().unwrap().len(), 1, "{json}");
    tenure.run(&["explain", "--all-groups", "nobody"]).refused("DT010");
}

#[test]
fn a_name_that_fits_two_instances_lists_both_and_changes_nothing() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    let before = group(&url, "jobs");
    for words in [
        &["drain", "jobs", "twin"][..],
        &["drain", "jobs", "twin", "--undo"],
        &["evict", "jobs", "twin"],
        &["cordon", "jobs", "twin"],
        &["weight", "jobs", "twin", "2"],
        &["plan", "jobs", "--leave", "twin"],
        &["evict", "--all-groups", "twin"],
    ] {
        let ran = tenure.run(words);
        ran.refused("DT021");
        assert!(ran.stderr.contains("twin in jobs: one-1 (twin), two-2 (twin)\n"), "{ran:?}");
    }
    let ran = tenure.run(&["evict", "poll", "web-1-17"]);
    ran.refused("DT021");
    let both = format!("web-1-17 in poll: {WEB_1} (web-1), {WEB_1_AGAIN} (web-1_2)\n");
    assert!(ran.stderr.contains(&both), "{ran:?}");
    assert_eq!(group(&url, "jobs"), before);
    let json = tenure.run(&["ls", "--json"]).json();
    let evicted = |group: &Value| {
        group["members"].as_array().unwrap().iter().any(|member| member["evicted"] == true)
    };
    assert!(!json["groups"].as_array().unwrap().iter().any(evicted), "{json}");
    // An exact id means one instance, and a typo gets a suggestion.
    tenure.run(&["cordon", "jobs", "one-1"]).ok();
    let ran = tenure.run(&["cordon", "poll", "web-3"]);
    ran.refused("DT010");
    assert!(ran.stderr.contains("web-3 is not a member of poll; did you mean web-"), "{ran:?}");
}

#[test]
fn an_operation_acts_in_every_group_of_an_instance() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    let text = tenure.run(&["cordon", "--all-groups", "web-2"]).ok();
    let line = |group| format!("{WEB_2} of {group} is cordoned: it keeps its duties");
    assert!(text.contains(&line("mail")) && text.contains(&line("poll")), "{text}");
    tenure.run(&["cordon", "--all-groups", WEB_2, "--undo"]).ok();
    let json = tenure.run(&["weight", "--all-groups", "web-2", "3", "--json"]).json();
    let groups: Vec<&Value> = json["groups"].as_array().unwrap().iter().collect();
    assert_eq!(groups.len(), 2, "{json}");
    assert_eq!((&groups[0]["group"], &groups[1]["weight"]), (&"mail".into(), &3.into()));
    let weight = json!([{ "what": "weight", "on": WEB_2, "how": "3" }]);
    for group in ["mail", "poll"] {
        assert_eq!(in_force(&tenure, &url, group), weight);
    }
    tenure.run(&["weight", "web-2", "--all-groups", "--remove"]).ok();
    let json = tenure.run(&["plan", "--all-groups", "--leave", "web-1_2", "--json"]).json();
    assert_eq!(json["groups"][0]["changes"]["leave"], json!([WEB_1_AGAIN]));

    // In `alone` the drain is refused, so it begins nowhere.
    with_store(&url, async |store| {
        join(&*store, "alone", WEB_2, &note("web-2")).await;
    });
    tenure.run(&["drain", "--all-groups", "web-2"]).refused("DT007");
    assert_eq!(in_force(&tenure, &url, "mail"), json!([]));
    let words = ["drain", "--all-groups", "web-2", "--force", "--timeout", "50s"];
    let json = tenure.run(&[&words[..], &["--json"]].concat()).json();
    let drained = json["groups"].as_array().unwrap().iter();
    let drained: Vec<&str> = drained
        .filter(|group| group["drained"] == true)
        .map(|group| group["group"].as_str().unwrap())
        .collect();
    assert_eq!(drained, ["alone", "mail", "poll"]);
    let text = tenure.run(&words).ok();
    assert_eq!(text.matches("holds no more duties").count(), 3, "{text}");
    let text = tenure.run(&["evict", "--all-groups", "web-1"]).ok();
    for group in ["mail", "poll"] {
        assert!(text.contains(&format!("{WEB_1} of {group} is evicted")), "{text}");
    }

    tenure.run(&["evict", "--all-groups", "nobody"]).refused("DT010");
    for words in [
        &["drain", "--all-groups"][..],
        &["drain", "poll", "web-2", "--all-groups"],
        &["weight", "--all-groups", "web-2"],
        &["weight", "--all-groups", "web-2", "x"],
        &["weight", "--all-groups", "web-2", "3", "--remove"],
        &["plan", "--all-groups"],
        &["plan", "poll", "--all-groups", "--leave", "web-2"],
    ] {
        let ran = tenure.run(words);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{words:?} {ran:?}");
    }
}

#[test]
fn people_see_names_and_what_is_special_about_a_member() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    with_store(&url, async |store| {
        let all = "tenure=1\nweight=3\nroom=9\nfailing=1\nzone=eu\nname=one\nrevision=v2\nview=0\n";
        join(&*store, "poll", "host-1", all).await;
        join(&*store, "poll", "host-2", &note("two")).await;
        join(&*store, "poll", "host-3", "secret=1").await;
    });
    tenure.run(&["cordon", "poll", "host-1"]).ok();
    let text = tenure.run(&["ls", "poll"]).ok();
    let line = |start: &str| {
        let line = text.lines().find(|line| line.starts_with(start)).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("MEMBER"), "MEMBER NAME REMAINING_MS STATE");
    let special = "failing, cordoned, weight 3, zone eu, revision v2";
    assert!(line("host-1").starts_with("host-1 one ") && line("host-1").ends_with(special));
    assert!(line("host-2").starts_with("host-2 two ") && line("host-2").ends_with(" -"));
    assert!(line("host-3").starts_with("host-3 - "));
    assert!(line("host-3").ends_with("takes-no-part") && !text.contains("secret"), "{text}");
    let json = tenure.run(&["ls", "poll", "--json"]).json();
    let member = &json["groups"][0]["members"][0];
    assert_eq!(
        [&member["name"], &member["zone"], &member["revision"], &member["weight"]],
        [&json!("one"), &json!("eu"), &json!("v2"), &json!(3)]
    );
    assert_eq!(member["state"], json!(["failing", "cordoned"]));
    for words in [&["top", "--once"][..], &["plan", "poll"]] {
        let text = tenure.run(words).ok();
        let has_name = |line: &str| line.starts_with("host-1  one  ");
        assert!(text.lines().any(has_name), "{text}");
    }
}

/// A shell that completes the line, with the function that the script defines.
fn complete(tenure: &Tenure, line: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let ask = r#"
        . ./tenure.bash
        COMP_LINE="$1" COMP_POINT=${#1} COMP_WORDBREAKS=$' \t\n"'"'"'><=;|&(:'
        _tenure tenure
        printf '%s\n' "${COMPREPLY[@]}""#;
    let mut command = tenure.command_of("bash", &["--norc", "-c", ask, "bash", line]);
    let ran = Ran::of(command.envs(variables.iter().copied()).output().unwrap());
    assert_eq!(ran.stderr, "", "{line}");
    ran.ok().lines().map(str::to_owned).filter(|name| !name.is_empty()).collect()
}

#[test]
fn bash_completes_names_from_the_store() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    with_store(&url, async |store| {
        let session = join(&*store, "gm:ail", WEB_2, &note("web-2")).await;
        claim(&*store, &session, "user:1").await;
        claim(&*store, &session, "user:2").await;
        claim(&*store, &session, "c").await;
    });
    std::fs::write(tenure.path("cursor.json"), "{}").unwrap();
    tenure.run(&["checkpoint", "put", "jobs/stored", "cursor.json"]).ok();
    std::fs::write(tenure.path("tenure.bash"), tenure.run(&["completions", "bash"]).ok()).unwrap();
    let check = |line: &str, expected: &[&str]| {
        assert_eq!(complete(&tenure, line, &[]), expected, "{line}");
    };
    check("tenure dra", &["drain"]);
    check("tenure ls p", &["poll"]);
    check("tenure drain p", &["poll"]);
    check("tenure drain poll web-1_", &["web-1_2"]);
    check("tenure drain poll web-1-1736598400000000002", &[WEB_1_AGAIN]);
    // Only members of the group on the line.
    check("tenure evict jobs t", &["twin", "two-2"]);
    check("tenure evict poll t", &[]);
    check("tenure evict --all-groups tw", &["twin", "two-2"]);
    check("tenure plan mail --leave web-2", &["web-2", WEB_2]);
    check("tenure plan mail --leave=web-2", &["web-2", WEB_2]);
    check("tenure pin poll/a --name web-1", &["web-1", "web-1_2"]);
    // bash replaces only what follows a colon.
    check("tenure explain gm%3Aail/user:", &["1", "2"]);
    check("tenure explain gm%3Aail/c", &["gm%3Aail/c"]);
    check("tenure checkpoint get j", &["jobs/stored"]);
    check("tenure run --duty jobs/", &["jobs/stored"]);
    check("tenure audit jobs/", &["jobs/stored"]);
    check("tenure gua", &[]);
    check(&format!("tenure --store {url} ls p"), &["poll"]);
    check(&format!("tenure ls --store={url} p"), &["poll"]);
    check("tenure --store sqlite:none.db ls p", &[]);
    check("tenure --store nothing://me:s3cret@h ls p", &[]);
    assert!(!tenure.path("none.db").exists());
    // From the environment, and from the file.
    let store = [("TENURE_STORE", "sqlite:none.db")];
    assert_eq!(complete(&tenure, "tenure ls p", &store), [""; 0]);
    std::fs::write(tenure.path("tenure.toml"), "store = \"sqlite:none.db\"\n").unwrap();
    check("tenure ls p", &[]);
    assert_eq!(complete(&tenure, "tenure ls p", &[("TENURE_STORE", &url)]), ["poll"]);
    std::fs::write(tenure.path("tenure.toml"), format!("store = \"{url}\"\n")).unwrap();
    check("tenure ls p", &["poll"]);
    std::fs::write(tenure.path("tenure.toml"), "not a file").unwrap();
    check("tenure ls p", &[]);
}

/// A store that accepts the connection and does not answer: the user gets the shell back.
#[test]
fn a_completion_does_not_wait_for_a_store_that_hangs() {
    let tenure = Tenure::new();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    std::fs::write(tenure.path("tenure.bash"), tenure.run(&["completions", "bash"]).ok()).unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    assert_eq!(complete(&tenure, "tenure ls p", &[("TENURE_STORE", &url)]), [""; 0]);
}

#[test]
fn zsh_and_fish_ask_for_the_words_before_the_cursor() {
    let tenure = Tenure::new();
    prepare(&tenure.sqlite("tenure.db"));
    for shell in ["zsh", "fish"] {
        let script = tenure.run(&["completions", shell]).ok();
        assert!(
            script.contains(&format!("TENURE_COMPLETE={shell}"))
                || script.contains(&format!("TENURE_COMPLETE=\"{shell}\"")),
            "{script}"
        );
        let mut command = tenure.command(&["--", "tenure", "drain", "poll", "web-1_"]);
        command.env("TENURE_COMPLETE", shell).env("_CLAP_COMPLETE_INDEX", "3");
        let text = Ran::of(command.output().unwrap()).ok();
        assert!(text.starts_with("web-1_2"), "{shell} {text}");
        let mut command = tenure.command(&[]);
        assert_eq!(Ran::of(command.env("TENURE_COMPLETE", shell).output().unwrap()).ok(), "");
    }
}
