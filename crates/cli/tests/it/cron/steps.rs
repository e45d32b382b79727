//! `tenure cron` on three machines with clocks of their own: the store's decides. Holders are
//! killed, the store is restarted, and its clock is set forwards and back.

use std::fs;

use jiff::Timestamp;
use rustix::process::Signal;
use testkit::{PostgresOptions, PostgresServer, TEST_POSTGRES, service, wait_until};

use super::{NOTE, ledger, listed, ran, skewed};
use crate::running::{LIMIT, Running, STAY, children};
use crate::tenure::Tenure;

struct Machines {
    tenure: Tenure,
    server: PostgresServer,
    running: Vec<Running>,
    started: usize,
}

impl Machines {
    fn start(&mut self, seconds: i64) {
        let url = self.server.url();
        let script = format!("{NOTE}; if test -e hang; then {STAY}; fi");
        let words = ["cron", "* * * * *", "--store", &url, "--duty", "jobs/minute", "--ttl", "3s"];
        let words = [&words[..], &["--", "sh", "-c", &script]].concat();
        let command = skewed(&self.tenure, &words, seconds);
        self.started += 1;
        let name = format!("machine-{}", self.started);
        let process = self.tenure.start_this(&name, command);
        self.tenure.said(&process, "\"event\":\"joined\"");
        self.running.push(process);
    }

    /// Sets the store's clock to two seconds before a minute, some minutes from now.
    fn to_minute(&self, minutes: i64) {
        let now = self.server.sql("SELECT extract(epoch FROM clock_timestamp())::bigint").unwrap();
        let now: i64 = now.trim().parse().unwrap();
        self.server.step_clock(58 - now % 60 + 60 * minutes).unwrap();
    }

    /// Waits until the newest run is recorded as done: one that is not would be run again.
    fn recorded(&self) {
        let state = || listed(&self.tenure, &self.server.url())["last"]["state"].clone();
        wait_until("it is recorded", LIMIT, || state() == "done").unwrap();
    }

    /// Kills the machine whose command runs.
    fn kill_holder(&mut self) {
        let busy = |process: &Running| !children(process.guard()).is_empty();
        let at = self.running.iter().position(busy).unwrap();
        self.running.remove(at).signal(Signal::KILL);
    }
}

fn minute(line: &[String]) -> i64 {
    line[0].parse::<Timestamp>().unwrap().as_second() / 60
}

#[test]
fn no_occurrence_runs_twice_whatever_clocks_show() {
    if service(TEST_POSTGRES).is_none() {
        return;
    }
    let options = PostgresOptions { faked_clock: true, ..PostgresOptions::default() };
    let server = PostgresServer::start(options).unwrap();
    let tenure = Tenure::new();
    let mut machines = Machines { tenure, server, running: Vec::new(), started: 0 };
    machines.to_minute(0);
    [90, 0, -90].into_iter().for_each(|seconds| machines.start(seconds));
    let first = minute(&ran(&machines.tenure, 1)[0]);
    machines.recorded();

    // The clock is set forwards: the leases end, and the next holder runs the newest minute. It is
    // killed in the middle, and another one runs it again.
    fs::write(machines.tenure.path("hang"), "").unwrap();
    machines.to_minute(5);
    let second = minute(&ran(&machines.tenure, 2)[1]);
    assert!(second >= first + 4, "{:?}", ledger(&machines.tenure));
    fs::remove_file(machines.tenure.path("hang")).unwrap();
    machines.kill_holder();
    let lines = ran(&machines.tenure, 3);
    assert_eq!((minute(&lines[2]), &*lines[2][1]), (second, "2"), "{lines:?}");
    assert_ne!(lines[1][2], lines[2][2]);
    machines.recorded();

    // The store restarts.
    machines.server.stop().unwrap();
    machines.server.start_again().unwrap();
    machines.to_minute(3);
    let third = minute(&ran(&machines.tenure, 4)[3]);
    assert!(third > second);
    machines.recorded();

    // The clock is set back: nothing is repeated, and the next new minute is run.
    machines.server.step_clock(-4 * 60).unwrap();
    machines.start(30);
    machines.server.step_clock(6 * 60).unwrap();
    machines.start(-30);
    ran(&machines.tenure, 5);
    let runs: Vec<(i64, String)> =
        ledger(&machines.tenure).iter().map(|line| (minute(line), line[1].clone())).collect();
    assert!(runs.is_sorted_by(|one, next| one < next), "{runs:?}");
    let repeated = runs.iter().filter(|(_, attempt)| attempt != "1").count();
    assert_eq!(repeated, 1, "{runs:?}");
}
