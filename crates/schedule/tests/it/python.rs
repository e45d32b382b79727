//! Comparison of occurrences with two other implementations, in Python: `cronsim`, which follows
//! Debian's cron, in time zones; `croniter` in UTC, because it moves occurrences in a gap of the
//! clock in a way of its own.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::thread;

use tenure_schedule::RunSchedule;
use testkit::{TEST_CRON, service};

use crate::at;

/// Reads expression, time zone and seconds since 1970 per line; prints the next occurrences.
const SCRIPT: &str = "
import sys
from datetime import datetime, timezone
from itertools import islice
from zoneinfo import ZoneInfo
from croniter import croniter
from cronsim import CronSim
for line in sys.stdin:
    expression, zone, start = line.rstrip('\\n').split('|')
    start = datetime.fromtimestamp(int(start), ZoneInfo(zone) if zone != 'UTC' else timezone.utc)
    found = islice(CronSim(expression, start), 6)
    print(*[int(at.timestamp()) for at in found])
    if zone == 'UTC':
        found = croniter(expression, start, implement_cron_bug=True)
        print(*[int(found.get_next(datetime).timestamp()) for _ in range(6)])
";

const CASES: u32 = 3_000;
const OCCURRENCES: usize = 6;

/// Time zones, and an instant shortly before a change of their clock.
const ZONES: &[(&str, &[&str])] = &[
    ("UTC", &["2028-02-28T12:00Z"]),
    ("Europe/Paris", &["2026-03-28T20:00Z", "2026-10-24T20:00Z"]),
    ("America/New_York", &["2027-03-14T01:00Z", "2027-11-07T01:00Z"]),
    ("America/Santiago", &["2026-04-04T20:00Z", "2026-09-05T20:00Z"]),
    ("Australia/Lord_Howe", &["2026-04-04T08:00Z", "2026-10-03T08:00Z"]),
    ("Asia/Kolkata", &["2028-02-28T12:00Z"]),
];

/// Random numbers from a seed, so that a failure can be reproduced.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn field(&mut self, least: u64, most: u64) -> String {
        match self.below(8) {
            0..3 => "*".to_owned(),
            3 => format!("*/{}", 2 + self.below(most / 2)),
            4 => {
                let from = least + self.below(most - least);
                let to = from + self.below(most - from) + 1;
                let step = if self.below(2) == 0 {
                    format!("/{}", 1 + self.below(4))
                } else {
                    String::new()
                };
                format!("{from}-{to}{step}")
            }
            5 => {
                let mut list = vec![least + self.below(most - least + 1)];
                list.extend((0..1 + self.below(3)).map(|_| least + self.below(most - least + 1)));
                list.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
            }
            _ => (least + self.below(most - least + 1)).to_string(),
        }
    }

    fn expression(&mut self) -> String {
        let days = match self.below(10) {
            0 => "L".to_owned(),
            _ => self.field(1, 31),
        };
        let months = match self.below(3) {
            0 => ["JAN", "feb", "MAR-OCT", "2", "12,1"][self.below(5) as usize].to_owned(),
            _ => "*".to_owned(),
        };
        let weekdays = match self.below(4) {
            0 => {
                ["SUN", "mon-FRI", "0", "7", "1,3", "*/2", "5-7"][self.below(7) as usize].to_owned()
            }
            1 => self.field(0, 6),
            _ => "*".to_owned(),
        };
        let (minute, hour) = (self.field(0, 59), self.field(0, 23));
        format!("{minute} {hour} {days} {months} {weekdays}")
    }

    /// Returns a time: any, or one around a change of the clock.
    fn start(&mut self, changes: &[&str]) -> u64 {
        let (begin, day) = (at("2024-01-01T00:00Z") / 1000, 24 * 60 * 60);
        if self.below(2) == 0 {
            return begin + self.below(6 * 365 * day);
        }
        let change = changes[self.below(changes.len() as u64) as usize];
        at(change) / 1000 + self.below(day)
    }
}

struct Case {
    schedule: RunSchedule,
    line: String,
    is_utc: bool,
    start: u64,
}

fn cases() -> Vec<Case> {
    let mut numbers = Numbers(19);
    let mut cases = Vec::new();
    while cases.len() < crate::cases(CASES) as usize {
        let expression = numbers.expression();
        let (zone, changes) = ZONES[numbers.below(ZONES.len() as u64) as usize];
        let start = numbers.start(changes);
        // Over a change of half an hour, cronsim steps by whole hours, and misses times that exist.
        let half_hours = zone == "Australia/Lord_Howe";
        if half_hours && expression.split(' ').take(2).any(|word| word.starts_with('*')) {
            continue;
        }
        // A day that does not exist is refused.
        if let Ok(schedule) = RunSchedule::cron(&expression, zone) {
            let line = format!("{expression}|{zone}|{start}");
            cases.push(Case { schedule, line, is_utc: zone == "UTC", start: start * 1000 });
        }
    }
    cases
}

fn answers(python: &str, cases: &[Case]) -> Vec<String> {
    let mut command = Command::new(python);
    command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = String::new();
    cases.iter().for_each(|case| writeln!(input, "{}", case.line).unwrap());
    let mut stdin = child.stdin.take().unwrap();
    let writer = thread::spawn(move || stdin.write_all(input.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn occurrences_are_those_of_other_implementations() {
    let Some(python) = service(TEST_CRON) else { return };
    let cases = cases();
    let mut answers = answers(&python, &cases).into_iter();
    for case in &cases {
        let own = case.schedule.after(case.start).take(OCCURRENCES);
        let own: Vec<String> = own.map(|at| (at / 1000).to_string()).collect();
        for _ in 0..1 + usize::from(case.is_utc) {
            assert_eq!(answers.next().unwrap(), own.join(" "), "{}", case.line);
        }
    }
    assert_eq!(answers.next(), None);
}
