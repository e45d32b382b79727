//! State files that are written in place: whole ones are told from those of a killed writer.

use rustix::process::{Pid, Signal};
use testkit::wait_until;

use super::{run, run_with, stored};
use crate::running::{LIMIT, STAY, children};
use crate::tenure::Tenure;

#[test]
fn writes_in_place_are_stored_when_they_are_whole() {
    let tenure = Tenure::new();
    let script = format!(
        "printf '{{\"n\": 1}}' > cursor.json; read go < go
         printf '{{\"n\":' > cursor.json; read go < again
         printf '{{\"n\": 3}}' > cursor.json; {STAY}"
    );
    // A pipe each: the second read could find the first writer still there.
    for pipe in ["go", "again"] {
        rustix::fs::mkfifoat(rustix::fs::CWD, tenure.path(pipe), rustix::fs::Mode::RWXU).unwrap();
    }
    let store = tenure.sqlite("tenure.db");
    let running = tenure.start("a", &run_with(&store, "cursor.json", &[], &script));
    let reaches = |content: &str| {
        let seen = wait_until(content, LIMIT, || stored(&tenure).as_deref() == Some(content));
        assert!(seen.is_ok(), "{content}: {:?}", tenure.text("a.err"));
    };
    reaches("{\"n\": 1}");
    std::fs::write(tenure.path("go"), "\n").unwrap();
    // Half of a document is logged, and not stored.
    tenure.said(&running, "it is not valid JSON");
    assert_eq!(stored(&tenure).as_deref(), Some("{\"n\": 1}"));
    std::fs::write(tenure.path("again"), "\n").unwrap();
    reaches("{\"n\": 3}");
    running.signal(Signal::TERM);
    running.exits(128 + 15);
}

/// Without a format, only the end of the writer tells half a file from a whole one.
#[test]
fn what_a_killed_program_has_written_in_place_is_not_stored() {
    let tenure = Tenure::new();
    run(&tenure, "cursor", &[], "echo 0 > new; mv new cursor").ok();
    for script in ["", "echo 1 > new; mv new cursor; "] {
        let script = format!("{script}exec 9> cursor; printf 1 >&9; kill -9 $$");
        let ran = run(&tenure, "cursor", &[], &script);
        assert_eq!(ran.code, Some(128 + 9), "{ran:?}");
        assert!(ran.stderr.contains("may have been writing it in place"), "{ran:?}");
        let kept = stored(&tenure).unwrap();
        assert!(kept == "0\n" || (kept == "1\n" && script.contains("mv")), "{kept:?}");
    }
    // The same, by a program that closes it: the last whole content counts, whatever the exit code.
    for (end, code) in [("exit 3", 3), ("exec 9>&-; exit 4", 4)] {
        let script = format!("exec 9> cursor; printf {code}2 >&9; {end}");
        assert_eq!(run(&tenure, "cursor", &[], &script).code, Some(code));
        assert_eq!(stored(&tenure), Some(format!("{code}2")));
    }
    // A file that was renamed into place is whole, however its writer ends.
    let ran = run(&tenure, "cursor", &[], "echo 9 > new; mv new cursor; kill -9 $$");
    assert_eq!((ran.code, stored(&tenure)), (Some(128 + 9), Some("9\n".to_owned())));
}

/// Number of processes below this one that were not reaped.
fn zombies_below(pid: Pid) -> usize {
    let is_zombie = |pid: Pid| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid()));
        stat.is_ok_and(|stat| stat.contains(") Z "))
    };
    let below = children(pid).into_iter();
    below.map(|child| usize::from(is_zombie(child)) + zombies_below(child)).sum()
}

/// A process that was killed before, and whose parent does not reap it, or one of another target.
#[test]
fn a_process_that_did_not_write_a_file_does_not_keep_it_from_the_store() {
    let tenure = Tenure::new();
    let script = "killed() { sh -c 'kill -9 $$' & exec tail -f /dev/null; }
        case $1 in
        noisy) killed;;
        quiet) read go < go; printf 1 > at-quiet;;
        own) (killed) & n=0; while :; do n=$((n + 1)); printf $n > at-own; sleep 0.3; done;;
        esac
        exec tail -f /dev/null";
    rustix::fs::mkfifoat(rustix::fs::CWD, tenure.path("go"), rustix::fs::Mode::RWXU).unwrap();
    let words = ["poll", "--targets", "list:noisy,quiet,own", "--timeout", "60s", "--every", "1s"];
    let words = [&words[..], &["--grace", "500ms", "--drain", "1s"]].concat();
    let words = [&words[..], &["--state", "at-{}", "--", "sh", "-c", script, "sh", "{}"]].concat();
    let running = tenure.start("a", &words);
    wait_until("both are killed", LIMIT, || zombies_below(running.pid()) == 2).unwrap();
    std::fs::write(tenure.path("go"), "\n").unwrap();
    for target in ["quiet", "own"] {
        let get = || tenure.run(&["checkpoint", "get", &format!("poll/{target}")]);
        wait_until(target, LIMIT, || get().code == Some(0)).unwrap();
    }
    running.signal(Signal::TERM);
    running.exits(0);
}

/// What a poll has left half-written is not the state that the next one begins with.
#[test]
fn the_poll_after_a_killed_one_begins_with_what_is_stored() {
    let tenure = Tenure::new();
    let script = "n=$(cat at-x 2> none || echo 1000); echo $n >> seen
        if [ $n = 1002 ] && ! [ -e torn ]; then
            touch torn; exec 9> at-x; printf 10 >&9; exec tail -f /dev/null
        fi
        echo $((n + 1)) > at-x";
    let words = ["poll", "--targets", "list:x", "--every", "300ms", "--timeout", "1s"];
    let grace = ["--grace", "100ms", "--state", "at-{}", "--", "sh", "-c", script];
    let running = tenure.start("a", &[&words[..], &grace].concat());
    let seen = tenure.lines("seen", 5);
    assert_eq!(seen[..5], ["1000", "1001", "1002", "1002", "1003"]);
    running.signal(Signal::TERM);
    running.exits(0);
}
