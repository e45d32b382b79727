//! Commands whose supervisor and guard are both gone: only the kernel can end them.

use rustix::process::{Pid, Signal, kill_process};
use testkit::wait_until;

use crate::running::{LIMIT, Running, STAY, children, family};
use crate::tenure::{Ran, Tenure};

fn run<'a>(options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let before = ["run", "--duty", "demo/one", "--ttl", "60s"];
    [&before[..], options, &["--", "sh", "-c", script]].concat()
}

fn poll<'a>(options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let before = ["poll", "--targets", "list:a", "--every", "1s", "--ttl", "130s"];
    [&before[..], &["--timeout", "50s"], options, &["--", "sh", "-c", script]].concat()
}

/// Returns all descendants of a process.
fn below(pid: Pid) -> Vec<Pid> {
    children(pid).into_iter().flat_map(|child| [vec![child], below(child)].concat()).collect()
}

/// Whether all have ended; zombies count, because there may be no parent to reap them.
fn all_ended(pids: &[Pid]) -> bool {
    let stat = |pid: &Pid| std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid()));
    pids.iter().all(|pid| stat(pid).map_or(true, |stat| stat.contains(") Z ")))
}

/// Kills the guard while `tenure` is stopped, and waits until all processes have ended.
#[track_caller]
fn without_anybody(running: &Running, guard: Pid, pids: &[Pid]) {
    running.signal(Signal::STOP);
    kill_process(guard, Signal::KILL).unwrap();
    let gone = wait_until("all have ended", LIMIT, || all_ended(pids));
    running.signal(Signal::KILL);
    assert!(gone.is_ok(), "{pids:?}");
}

#[test]
fn a_command_does_not_outlive_its_guard() {
    let script = format!("echo $$ >> pids; {STAY}");
    for words in [run(&[], &script), poll(&[], &script)] {
        let tenure = Tenure::new();
        let running = tenure.start("a", &words);
        let pids = tenure.pids("pids", 1);
        without_anybody(&running, running.guard(), &pids);
    }
}

/// A guard ends more processes than the kernel would, so it has to wake up. Below an init of the
/// same session, as in a container, its process group is not orphaned: the kernel does not wake it.
#[test]
fn a_stopped_guard_wakes_up_when_tenure_is_killed() {
    let init = "\"$0\" \"$@\" & exec tail -f /dev/null";
    let before = ["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", init];
    let before = [&before[..], &[env!("CARGO_BIN_EXE_tenure")]].concat();
    for options in [&[][..], &["--isolate"]] {
        let (tenure, script) = (Tenure::new(), family(":"));
        let words = [&before[..], &run(options, &script)].concat();
        let running = tenure.start_this("a", tenure.command_of("unshare", &words));
        tenure.lines("pids", 3);
        let supervisor = children(children(running.pid())[0])[0];
        let (pids, guard) = (below(supervisor), children(supervisor)[0]);
        for pid in [&[guard][..], &children(guard)].concat() {
            kill_process(pid, Signal::STOP).unwrap();
        }
        kill_process(supervisor, Signal::KILL).unwrap();
        wait_until("all have ended", LIMIT, || all_ended(&pids)).unwrap();
    }
}

#[test]
fn nothing_isolated_outlives_its_guard_or_the_parent_of_that() {
    let script = family("trap \"\" TERM");
    for words in [run(&["--isolate"], &script), poll(&["--isolate"], &script)] {
        for inner in [true, false] {
            let tenure = Tenure::new();
            let running = tenure.start("a", &words);
            tenure.lines("pids", 3);
            let (pids, parent) = (below(running.guard()), running.guard());
            assert!(pids.len() >= 4, "{pids:?}");
            let guard = if inner { children(parent)[0] } else { parent };
            without_anybody(&running, guard, &pids);
        }
    }
}

/// Script that records what it sees in its namespace, and exits on TERM.
const LOOK: &str =
    "ps -A -o pid=,comm= > seen; id -u >> seen; grep CapEff /proc/self/status >> seen
                    cat $TENURE_DEADLINE_FILE > deadline; echo end >> seen
                    trap 'exit 9' TERM; echo >> ready; while :; do read line <&9; done";

/// Returns what an isolated command sees; checks that TERM ends it.
#[track_caller]
fn looks_around(tenure: &Tenure, command: std::process::Command) -> Vec<String> {
    let running = tenure.start_this("a", command);
    tenure.said(&running, "\"event\":\"acquired\"");
    tenure.lines("ready", 1);
    running.signal(Signal::TERM);
    running.exits(9);
    assert!(tenure.text("deadline").contains("state=held"));
    tenure.lines("seen", 4)
}

#[test]
fn an_isolated_command_sees_its_own_processes_and_has_its_exit_code() {
    let tenure = Tenure::new();
    let script = format!("mkfifo hold; exec 9<>hold; {LOOK}");
    let seen = looks_around(&tenure, tenure.command(&run(&["--isolate"], &script)));
    assert_eq!(seen[0].trim(), "1 tenure-guard");
    assert!(!seen.iter().any(|line| line.ends_with(" tenure")), "{seen:?}");
}

/// A user without the right to create a PID namespace uses a user namespace. The command keeps its
/// user and gets no capabilities. The program is opened first: `nobody` may not reach its path.
#[test]
fn anybody_may_isolate() {
    use std::os::unix::fs::PermissionsExt;
    let tenure = Tenure::new();
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(tenure.path(""), open).unwrap();
    let become_nobody = "exec 8< \"$0\"; exec setpriv --reuid=65534 --regid=65534 --clear-groups \
                         --inh-caps=-all /proc/self/fd/8 \"$@\"";
    let script = format!("mkfifo hold; exec 9<>hold; {LOOK}");
    let words = ["-c", become_nobody, env!("CARGO_BIN_EXE_tenure")];
    let command = tenure.command_of("sh", &[&words[..], &run(&["--isolate"], &script)].concat());
    let seen = looks_around(&tenure, command);
    assert_eq!(seen[0].trim(), "1 tenure-guard");
    assert!(seen.contains(&"65534".to_owned()), "{seen:?}");
    assert!(seen.contains(&"CapEff:\t0000000000000000".to_owned()), "{seen:?}");
}

/// In a user namespace of its own, root can forbid further PID namespaces.
#[test]
fn where_nothing_can_be_isolated_nothing_runs() {
    let tenure = Tenure::new();
    let forbid = "echo 0 > /proc/sys/user/max_pid_namespaces; exec \"$0\" \"$@\"";
    let before = ["--user", "--map-root-user", "sh", "-c", forbid, env!("CARGO_BIN_EXE_tenure")];
    for (words, code) in
        [(run(&["--isolate"], "echo >> never"), 125), (poll(&["--isolate"], "echo >> never"), 1)]
    {
        let mut command = tenure.command_of("unshare", &[&before[..], &words].concat());
        let ran = Ran::of(command.output().unwrap());
        assert_eq!(ran.code, Some(code), "{ran:?}");
        let said = "DT016: commands cannot be isolated on this machine: the kernel does not \
                    allow a PID namespace";
        assert!(ran.stderr.contains(said), "{ran:?}");
        assert!(!tenure.path("never").exists() && !tenure.path("tenure.db").exists());
    }
}
