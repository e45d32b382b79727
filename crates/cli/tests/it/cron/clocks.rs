//! `tenure cron` at both changes of the clock of two time zones, and on a leap day.

use jiff::Timestamp;
use rustix::process::Signal;
use tenure_duty::process;

use super::{NOTE, listed, ran, skewed};
use crate::tenure::Tenure;

/// Expression, time zone, and the time at which it is due.
const CASES: &[(&str, &str, &str)] = &[
    // The gap, and the first of the times that come twice.
    ("30 2 * * *", "Europe/Paris", "2027-03-28T01:00:00Z"),
    ("30 2 * * *", "Europe/Paris", "2027-10-31T00:30:00Z"),
    ("30 2 * * *", "America/New_York", "2027-03-14T07:00:00Z"),
    ("30 1 * * *", "America/New_York", "2027-11-07T05:30:00Z"),
    ("0 0 29 2 *", "UTC", "2028-02-29T00:00:00Z"),
];

#[test]
fn a_command_runs_at_a_change_of_the_clock_and_on_a_leap_day() {
    let mut started = Vec::new();
    for (expression, zone, due) in CASES {
        let tenure = Tenure::new();
        // The SQLite store has the clock of the machine, three seconds before the time.
        let at = due.parse::<Timestamp>().unwrap().as_second();
        let ahead = at - 3 - i64::try_from(process::unix_ms() / 1000).unwrap();
        let words = ["cron", expression, "--tz", zone, "--duty", "jobs/nightly"];
        let words = [&words[..], &["--ttl", "3s", "--", "sh", "-c", NOTE]].concat();
        let process = tenure.start_this("cron", skewed(&tenure, &words, ahead));
        started.push((tenure, process, due));
    }
    for (tenure, process, due) in started {
        let lines = ran(&tenure, 1);
        assert_eq!((&*lines[0][0], &*lines[0][1]), (*due, "1"), "{lines:?}");
        tenure.said(&process, "\"event\":\"occurrence_done\"");
        process.signal(Signal::TERM);
        process.exits(128 + 15);
        let listed = listed(&tenure, &tenure.sqlite("tenure.db"));
        assert_eq!(listed["last"]["state"], "done");
        assert_eq!(listed["last_success_at"], listed["last"]["scheduled_at"]);
        assert_eq!(tenure.lines("ledger", 0).len(), 1);
    }
}
