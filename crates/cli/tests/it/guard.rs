//! The guard process alone: the test is its parent and speaks its protocol.

use std::fs::File;
use std::io::{BufRead, BufReader, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tenure_core::{Clock, LocalInstant};
use tenure_store::BootClock;
use testkit::wait_until;

use crate::tenure::Tenure;

/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3600);
const LIMIT: Duration = Duration::from_secs(60);

/// A guard, and the folder for the output of its commands.
struct Guarded {
    tenure: Tenure,
    guard: Child,
    orders: UnixStream,
    reports: BufReader<UnixStream>,
}

impl Guarded {
    fn new() -> Self {
        let tenure = Tenure::new();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let input = File::open("/dev/null").unwrap();
        let files = [input.as_fd()];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
        sendmsg(&ours, &[IoSlice::new(b"i")], &mut control, SendFlags::empty()).unwrap();
        let mut command = tenure.command(&["guard"]);
        command.stdin(Stdio::from(OwnedFd::from(theirs))).process_group(0);
        let guard = command.spawn().unwrap();
        // A missing report fails the test instead of blocking it.
        ours.set_read_timeout(Some(LIMIT)).unwrap();
        let reports = BufReader::new(ours.try_clone().unwrap());
        Self { tenure, guard, orders: ours, reports }
    }

    fn order(&mut self, order: &str) {
        self.orders.write_all(format!("{order}\n").as_bytes()).unwrap();
    }

    /// Starts a shell that may run until `deadline`.
    fn start(&mut self, deadline: LocalInstant, grace: Duration, script: &str) -> Pid {
        let words = ["sh", "-c", script].map(|word| utf8_percent_encode(word, NON_ALPHANUMERIC));
        let (deadline, grace) = (deadline.as_nanos(), grace.as_nanos());
        let [a, b, c] = words;
        self.order(&format!("start 1 {deadline} {grace} 1 FROM the%20test {a} {b} {c}"));
        let report = self.report();
        let pid = report.strip_prefix("started 1 ").unwrap_or_else(|| panic!("{report}"));
        Pid::from_raw(pid.parse().unwrap()).unwrap()
    }

    fn report(&mut self) -> String {
        let mut line = String::new();
        self.reports.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.guard)
    }

    /// Waits until a command has written this file, and returns the process ids in it.
    fn pids(&self, name: &str, count: usize) -> Vec<Pid> {
        let path = self.tenure.path(name);
        let read = || {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let whole = text.lines().filter(|_| text.ends_with('\n'));
            whole.map(|line| Pid::from_raw(line.parse().unwrap()).unwrap()).collect::<Vec<_>>()
        };
        wait_until(name, LIMIT, || read().len() == count).unwrap();
        read()
    }

    /// Closes the socket and waits for the guard to exit.
    fn leave(mut self) -> Tenure {
        self.orders.shutdown(std::net::Shutdown::Both).unwrap();
        wait_until("the guard goes", LIMIT, || self.guard.try_wait().unwrap().is_some()).unwrap();
        assert!(self.guard.wait().unwrap().success());
        self.tenure
    }
}

fn in_time(from_now: Duration) -> LocalInstant {
    BootClock.now().plus(from_now)
}

fn all_gone(pids: &[Pid]) -> bool {
    pids.iter().all(|pid| test_kill_process(*pid).is_err())
}

/// Returns a script with a child, and an orphan in a session of its own. All of them begin with
/// `trap` and write their process ids to the file `pids`.
fn family(trap: &str) -> String {
    let stay = format!("{trap}; echo $$ >> pids; while :; do read line <&9; done");
    format!(
        "{trap}; mkfifo hold; exec 9<>hold; (setsid sh -c '{stay}' &); sh -c '{stay}' &
         echo $$ >> pids; while :; do read line <&9; done"
    )
}

#[test]
fn a_command_has_its_group_its_words_and_its_end() {
    let mut guarded = Guarded::new();
    let script = "echo \"$FROM\" > said; cat >> said; ps -o pgid= -p $$ >> said; exit 7";
    let pid = guarded.start(in_time(NEVER), Duration::ZERO, script);
    assert_eq!(guarded.report(), "ended 1 code 7 itself");
    let said = std::fs::read_to_string(guarded.tenure.path("said")).unwrap();
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    assert_eq!(lines, ["the test", &pid.as_raw_pid().to_string()]);
    // The same guard runs one command after another.
    guarded.start(in_time(NEVER), Duration::ZERO, "kill -USR1 $$");
    assert_eq!(guarded.report(), "ended 1 signal 10 itself");
    guarded.order("start 1 18446744073709551615 0 0 no%2Dsuch%2Dprogram");
    assert_eq!(guarded.report(), "cannot-start 1 2");
    guarded.leave();
}

#[test]
fn nothing_of_a_command_outlives_it() {
    let mut guarded = Guarded::new();
    let left = "(setsid sh -c 'echo $$ > pids; exec 9<>hold; read line <&9' &)";
    let script = format!("mkfifo hold; {left}; while ! test -s pids; do :; done; exit 3");
    guarded.start(in_time(NEVER), NEVER / 2, &script);
    assert_eq!(guarded.report(), "ended 1 code 3 itself");
    assert!(all_gone(&guarded.pids("pids", 1)));
    guarded.leave();
}

#[test]
fn at_the_deadline_nothing_runs_any_more_although_nobody_says_a_word() {
    for trap in [":", "trap '' TERM"] {
        let mut guarded = Guarded::new();
        let deadline = in_time(Duration::from_secs(6));
        guarded.start(deadline, Duration::from_secs(3), &family(trap));
        let pids = guarded.pids("pids", 3);
        let report = guarded.report();
        assert!(all_gone(&pids), "{report}");
        match trap {
            // TERM comes a grace period before the deadline; KILL comes at the deadline.
            ":" => {
                assert_eq!(report, "ended 1 signal 15 deadline");
                assert!(BootClock.now() < deadline);
            }
            _ => {
                assert_eq!(report, "ended 1 signal 9 deadline");
                assert!(BootClock.now() >= deadline);
            }
        }
        guarded.leave();
    }
}

#[test]
fn a_later_deadline_counts() {
    let mut guarded = Guarded::new();
    let (first, second) = (in_time(Duration::from_millis(800)), in_time(Duration::from_secs(3)));
    guarded.start(first, Duration::ZERO, &family("trap '' TERM"));
    guarded.order(&format!("deadline 1 {}", second.as_nanos()));
    // An earlier deadline does not shorten the current one, nor does one of another command.
    guarded.order(&format!("deadline 1 {}", first.as_nanos()));
    guarded.order("deadline 2 18446744073709551615");
    assert_eq!(guarded.report(), "ended 1 signal 9 deadline");
    assert!(BootClock.now() >= second);
    guarded.leave();
}

#[test]
fn when_the_parent_is_gone_so_is_everything() {
    for (trap, grace) in [(":", NEVER / 2), ("trap '' TERM", Duration::from_millis(300))] {
        let mut guarded = Guarded::new();
        guarded.start(in_time(NEVER), grace, &family(trap));
        let pids = guarded.pids("pids", 3);
        let tenure = guarded.leave();
        assert!(all_gone(&pids));
        drop(tenure);
    }
}

#[test]
fn an_order_to_end_is_asked_first_and_then_done() {
    let mut guarded = Guarded::new();
    guarded.start(in_time(NEVER), Duration::ZERO, &family("trap \"echo asked >> asked\" TERM"));
    let pids = guarded.pids("pids", 3);
    let kill_at = in_time(Duration::from_millis(500));
    guarded.order(&format!("end 1 {}", kill_at.as_nanos()));
    assert_eq!(guarded.report(), "ended 1 signal 9 ordered");
    assert!(BootClock.now() >= kill_at && all_gone(&pids));
    assert!(guarded.tenure.path("asked").exists());
    guarded.leave();
}

#[test]
fn an_order_to_end_later_does_not_put_off_the_deadline() {
    let mut guarded = Guarded::new();
    let deadline = in_time(Duration::from_secs(3));
    guarded.start(deadline, Duration::ZERO, &family("trap '' TERM"));
    let pids = guarded.pids("pids", 3);
    guarded.order(&format!("end 1 {}", in_time(NEVER).as_nanos()));
    assert_eq!(guarded.report(), "ended 1 signal 9 ordered");
    assert!(BootClock.now() >= deadline && all_gone(&pids));
    guarded.leave();
}

#[test]
fn signals_reach_the_group_and_not_the_guard() {
    let mut guarded = Guarded::new();
    let script = "trap 'echo usr1 > got; exit 5' USR1; mkfifo hold; exec 9<>hold; echo $$ > pids
                  while :; do read line <&9; done";
    guarded.start(in_time(NEVER), Duration::ZERO, script);
    let pids = guarded.pids("pids", 1);
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::TSTP] {
        kill_process(guarded.pid(), signal).unwrap();
    }
    guarded.order("signal 1 19");
    assert_eq!(guarded.report(), "stopped 1 19");
    assert!(!all_gone(&pids));
    guarded.order("signal 1 10");
    guarded.order("signal 1 18");
    assert_eq!(guarded.report(), "ended 1 code 5 itself");
    guarded.leave();
}

#[test]
fn what_is_stopped_is_ended_too() {
    let mut guarded = Guarded::new();
    guarded.start(in_time(NEVER), NEVER / 2, &family(":"));
    let pids = guarded.pids("pids", 3);
    for pid in &pids {
        kill_process(*pid, Signal::STOP).unwrap();
    }
    assert_eq!(guarded.report(), "stopped 1 19");
    guarded.leave();
    assert!(all_gone(&pids));
}

#[test]
fn a_guard_is_not_started_by_hand() {
    let ran = Tenure::new().run(&["guard"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("only `tenure run` and `tenure poll` can start a guard"),
        "{ran:?}"
    );
}
