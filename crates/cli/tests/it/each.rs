//! `tenure run --group`: one command per held duty.

use std::collections::BTreeSet;
use std::process::Command;

use rustix::process::{Signal, kill_process};
use testkit::wait_until;

use crate::api::shared_stores;
use crate::running::{LIMIT, Running, STAY, all_gone};
use crate::tenure::Tenure;

/// Arguments of `tenure run` for the group `g`.
fn each<'a>(store: &'a str, what: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let before = ["run", "--store", store, "--group", "g", "--ttl", "3s"];
    [&before[..], what, &["--", "sh", "-c", script]].concat()
}

/// Script that notes duty and instance when it begins and when it is asked to end, and stays. The
/// lock shows whether two run at the same time.
fn note(name: &str) -> String {
    format!(
        "exec 8> lock-{{}}; flock -n 8 || echo {{}} >> overlaps
         echo begin {{}} $TENURE_INSTANCE $$ >> {name}
         trap 'echo end {{}} $TENURE_INSTANCE >> {name}; exit 0' TERM; {}",
        STAY.replace("hold", "hold-{}")
    )
}

/// Duties whose command runs: begun and not ended, with their process ids.
fn running(tenure: &Tenure, name: &str) -> BTreeSet<String> {
    let mut running = BTreeSet::new();
    for line in tenure.lines(name, 0) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[0] {
            "begin" => running.insert(words[1].to_owned()),
            _ => running.remove(words[1]),
        };
    }
    running
}

#[track_caller]
fn ends(process: Running) {
    process.signal(Signal::TERM);
    process.exits(128 + 15);
}

#[test]
fn shards_are_shared_and_each_has_one_command() {
    for store in shared_stores(&Tenure::new()) {
        let tenure = Tenure::new();
        let (one, two) = (note("one"), note("two"));
        let first = tenure.start("a", &each(&store, &["--shards", "4"], &one));
        wait_until("the first has all", LIMIT, || running(&tenure, "one").len() == 4).unwrap();
        let second = tenure.start("b", &each(&store, &["--shards", "4"], &two));
        let split = || {
            let (one, two) = (running(&tenure, "one"), running(&tenure, "two"));
            one.len() == 2 && two.len() == 2 && one.is_disjoint(&two)
        };
        wait_until("each has two", LIMIT, split).unwrap();
        // A killed instance takes its commands with it, and the other gets all.
        let pid = |line: &String| line.rsplit_once(' ').unwrap().1.parse().unwrap();
        let begun = tenure.lines("one", 0);
        let begun = begun.iter().filter(|line| line.starts_with("begin")).map(pid);
        let pids: Vec<_> = begun.filter_map(rustix::process::Pid::from_raw).collect();
        kill_process(first.pid(), Signal::KILL).unwrap();
        wait_until("the second has all", LIMIT, || running(&tenure, "two").len() == 4).unwrap();
        assert!(all_gone(&pids), "{store}");
        ends(second);
        assert_eq!((running(&tenure, "two").len(), &*tenure.text("overlaps")), (0, ""), "{store}");
    }
}

#[test]
fn targets_come_and_go_with_their_commands() {
    let tenure = Tenure::new();
    std::fs::write(tenure.path("targets"), "a\nb/c\n").unwrap();
    let options = ["--targets", "file:targets", "--list-every", "100ms"];
    let script =
        "echo begin $TENURE_TARGET {} >> log; trap 'echo end $TENURE_TARGET >> log; exit 0' TERM
                  mkfifo hold-$$; exec 9<>hold-$$; while :; do read line <&9; done";
    let store = tenure.sqlite("tenure.db");
    let process = tenure.start("a", &each(&store, &options, script));
    assert_eq!(tenure.lines("log", 2).into_iter().collect::<BTreeSet<_>>().len(), 2);
    assert!(tenure.text("log").contains("begin b/c b/c\n"));
    std::fs::write(tenure.path("new"), "a\nd\n").unwrap();
    std::fs::rename(tenure.path("new"), tenure.path("targets")).unwrap();
    let last: BTreeSet<String> = tenure.lines("log", 4).split_off(2).into_iter().collect();
    assert_eq!(last, ["begin d d", "end b/c"].map(str::to_owned).into());
    ends(process);
}

/// Partitions are claimed: a second process with the same number waits.
#[test]
fn a_partition_has_one_process_whatever_its_number_says() {
    let tenure = Tenure::new();
    let store = tenure.sqlite("tenure.db");
    let start = |name: &str, variables: &[(&str, &str)]| {
        let script = format!(
            "echo $TENURE_SHARD $TENURE_SHARDS $CONNECTOR_PARTITIONS $CONNECTOR_PARTITION_ID \
             >> {name}; {}",
            STAY.replace("hold", "hold-$$")
        );
        let mut command: Command = tenure.command(&each(&store, &["--partitions"], &script));
        tenure.start_this(name, {
            command.envs(variables.iter().copied());
            command
        })
    };
    let both = [("CONNECTOR_PARTITIONS", "0,2"), ("CONNECTOR_TOTAL_PARTITIONS", "3")];
    let first = start("a", &both);
    let begun: BTreeSet<String> = tenure.lines("a", 2).into_iter().collect();
    assert_eq!(begun, ["0 3 0 0", "2 3 2 2"].map(str::to_owned).into());
    let one = [("CONNECTOR_PARTITION_ID", "2"), ("CONNECTOR_TOTAL_PARTITIONS", "3")];
    let second = start("b", &one);
    tenure.said(&second, "\"event\":\"standby\"");
    assert_eq!(tenure.text("b"), "");
    ends(first);
    assert_eq!(tenure.lines("b", 1), ["2 3 2 2"]);
    ends(second);
    let third = start("c", &[("CONNECTOR_PARTITIONS", "1")]);
    assert_eq!(tenure.lines("c", 1), ["1 1"], "the total is not known");
    ends(third);

    let mut command = tenure.command(&each(&store, &["--partitions"], "true"));
    let ran = crate::tenure::Ran::of(command.output().unwrap());
    assert!(ran.stderr.contains("DT008: ") && ran.code == Some(2), "{ran:?}");
}

#[test]
fn a_command_that_ends_is_started_again_and_its_output_is_labelled() {
    let tenure = Tenure::new();
    let script = "echo out of {}; echo broken {} >&2; test {} = 0";
    let store = tenure.sqlite("tenure.db");
    let process = tenure.start("a", &each(&store, &["--shards", "2"], script));
    let seen = |line: &str, times: usize| {
        let count = || tenure.text("a.out").lines().filter(|found| *found == line).count();
        wait_until(line, LIMIT, || count() >= times).unwrap();
    };
    for line in ["0: out of 0", "0: broken 0", "1: out of 1", "1: broken 1"] {
        seen(line, 2);
    }
    tenure.said(&process, "exit code 1: broken 1; it is started again after a pause");
    ends(process);
    // The log has nothing of it but the reason.
    assert!(tenure.text("a.err").lines().all(|line| line.starts_with('{')));
    assert!(tenure.text("a.out").lines().all(|line| line.contains(": ")));
}

#[test]
fn output_can_be_left_as_it_is() {
    let tenure = Tenure::new();
    let store = tenure.sqlite("tenure.db");
    let options = ["--shards", "1", "--output", "plain"];
    let process = tenure.start("a", &each(&store, &options, "echo out; exit 3"));
    wait_until("it is printed", LIMIT, || tenure.text("a.out").starts_with("out\n")).unwrap();
    ends(process);
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_starts() {
    let tenure = Tenure::new();
    for words in [
        &["--group", "g"][..],
        &["--shards", "2"],
        &["--duty", "g/d", "--shards", "2"],
        &["--group", "g", "--duty", "g/d", "--shards", "2"],
        &["--group", "g", "--shards", "2", "--partitions"],
        &["--group", "g", "--shards", "0"],
        &["--group", "g", "--shards", "2", "--no-wait"],
        &["--group", "g/d", "--shards", "2"],
        &["--group", "g", "--shards", "2", "--room", "0"],
        &["--group", "g", "--targets", "nowhere:x"],
    ] {
        let ran = tenure.run(&[&["run"], words, &["--", "true"]].concat());
        assert_eq!(ran.code, Some(2), "{words:?}: {ran:?}");
    }
    assert!(!tenure.path("tenure.db").exists());
}

/// A duty moves only after its command has ended.
#[test]
fn a_command_that_does_not_end_in_time_is_killed_before_its_duty_moves() {
    let tenure = Tenure::new();
    let store = tenure.sqlite("tenure.db");
    let script = note("one").replace("exit 0' TERM", "' TERM");
    let options = ["--shards", "2", "--drain", "500ms", "--grace", "200ms"];
    let first = tenure.start("a", &each(&store, &options, &script));
    wait_until("the first has all", LIMIT, || running(&tenure, "one").len() == 2).unwrap();
    let two = note("two");
    let second = tenure.start("b", &each(&store, &options, &two));
    wait_until("the second has one", LIMIT, || running(&tenure, "two").len() == 1).unwrap();
    assert_eq!(tenure.text("overlaps"), "");
    ends(first);
    wait_until("the second has both", LIMIT, || running(&tenure, "two").len() == 2).unwrap();
    assert_eq!(tenure.text("overlaps"), "");
    ends(second);
}
