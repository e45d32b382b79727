//! `tenure beat --every`.

use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use testkit::wait_until;

use super::listener::{Listener, Reply};
use super::{bare, beat, counters, run, with_bot};
use crate::running::{LIMIT, all_gone};
use crate::tenure::Tenure;

/// A long interval, so that every heartbeat after the first was requested by a signal.
fn every(tenure: &Tenure, listener: &Listener, words: &[&str]) -> Command {
    beat(tenure, &listener.url(), &[&["--every", "300s"], words].concat())
}

#[test]
fn it_goes_on_whatever_happens_and_says_that_it_stops() {
    let tenure = Tenure::new();
    let replies = vec![Reply::Nothing, Reply::Answer(503, String::new()), Reply::accepted()];
    let listener = Listener::start(replies);
    std::fs::write(tenure.path("counts"), "messages_ingested 1").unwrap();
    let words = ["--counters", "counts", "--state", "error", "--message", "why"];
    let running = tenure.start_this("beat", every(&tenure, &listener, &words));
    // The first heartbeat is sent at once. It fails, and so does the second.
    let first = listener.wait(1);
    assert_eq!(counters(&first.body())[0], 1);
    tenure.said(&running, "warning: SW005: the switchboard cannot be reached: ");
    std::fs::write(tenure.path("counts"), "messages_ingested 2").unwrap();
    running.signal(Signal::USR1);
    assert_eq!(counters(&listener.wait(2).body())[0], 2);
    tenure.said(&running, "warning: SW006: the switchboard did not accept the heartbeat: 503");
    // Counters that cannot be read keep their last values.
    std::fs::write(tenure.path("counts"), "messages_inge").unwrap();
    running.signal(Signal::USR1);
    let third = listener.wait(3);
    assert_eq!(counters(&third.body())[0], 2);
    assert_eq!(third.body()["status"]["error_message"], "why");
    tenure.said(&running, "warning: SW007: the counters cannot be read: counts: line 1: ");
    assert_eq!(tenure.lines("beat.out", 1).len(), 1);
    std::fs::remove_file(tenure.path("counts")).unwrap();
    running.signal(Signal::TERM);
    let last = listener.wait(4);
    assert_eq!(last.body()["status"]["state"], "degraded");
    assert_eq!(last.body()["status"]["error_message"], "stopping");
    assert_eq!(counters(&last.body())[0], 2);
    assert_eq!(last.instance(), first.instance());
    running.exits(0);
    assert_eq!(listener.sent().len(), 4);
    assert_eq!(tenure.lines("beat.out", 2).len(), 2);
}

#[test]
fn it_ends_when_nobody_answers_and_when_it_is_asked_twice() {
    let tenure = Tenure::new();
    let listener = Listener::start(vec![Reply::accepted(), Reply::Silence]);
    let running = tenure.start_this("beat", every(&tenure, &listener, &["--timeout", "300s"]));
    listener.wait(1);
    tenure.lines("beat.out", 1);
    running.signal(Signal::INT);
    listener.wait(2);
    running.signal(Signal::INT);
    running.exits(0);
    let listener = Listener::start(vec![Reply::accepted(), Reply::Nothing]);
    let running = tenure.start_this("again", every(&tenure, &listener, &[]));
    listener.wait(1);
    running.signal(Signal::TERM);
    listener.wait(2);
    tenure.said(&running, "warning: SW005");
    running.exits(0);
}

#[test]
fn it_ends_with_the_script_that_it_beats_for() {
    let (tenure, listener) = (Tenure::new(), Listener::accepting());
    let script = format!(
        "{} beat --every & echo $! > pid; mkfifo hold; read line < hold",
        env!("CARGO_BIN_EXE_tenure")
    );
    let mut command = bare(&tenure, "sh", &["-c", &script]);
    with_bot(&mut command, &listener.url());
    let mut script = tenure.start_this("script", command);
    let pid: Vec<Pid> = tenure.pids("pid", 1);
    let first = listener.wait(1);
    script.signal(Signal::KILL);
    script.wait();
    kill_process(pid[0], Signal::USR1).unwrap();
    let last = listener.wait(2);
    assert_eq!(last.body()["status"]["error_message"], "stopping");
    assert_eq!(last.instance(), first.instance());
    wait_until("it ends", LIMIT, || all_gone(&pid)).unwrap();
    assert!(tenure.text("script.err").contains("the calling process has ended"));
}

#[test]
fn the_interval_is_read_at_the_start() {
    let (tenure, listener) = (Tenure::new(), Listener::accepting());
    let name = "CONNECTOR_HEARTBEAT_INTERVAL_S";
    for text in ["soon", "1.5", "120s"] {
        let ran = run(beat(&tenure, &listener.url(), &["--every"]).env(name, text));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains("is not a whole number of seconds"), "{ran:?}");
    }
    assert_eq!(listener.sent().len(), 0);
    // Without --every the interval is not read.
    run(beat(&tenure, &listener.url(), &[]).env(name, "soon")).ok();
    let mut count = 1;
    for (words, text, says) in [
        (&["--every"][..], "5", Some("warning: CONNECTOR_HEARTBEAT_INTERVAL_S is set to 30 s")),
        (&["--every"], "301", Some("warning: CONNECTOR_HEARTBEAT_INTERVAL_S is set to 300 s")),
        (&["--every", "2h"], "60", Some("warning: --every is set to 300 s")),
        (&["--every", "60"], "5", None),
    ] {
        let mut command = beat(&tenure, &listener.url(), words);
        command.env(name, text);
        let running = tenure.start_this("beat", command);
        count += 1;
        listener.wait(count);
        tenure.lines("beat.out", 1);
        running.signal(Signal::TERM);
        count += 1;
        listener.wait(count);
        running.exits(0);
        let said = tenure.text("beat.err");
        assert_eq!(said.lines().count(), usize::from(says.is_some()), "{said}");
        assert!(said.contains(says.unwrap_or_default()), "{said}");
    }
}
