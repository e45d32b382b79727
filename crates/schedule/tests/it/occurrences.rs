//! Occurrences, with both changes of the clock of three time zones, and the leap day.

use std::time::Duration;

use tenure_schedule::{ClockChange, RunSchedule};

use crate::at;

/// Lists occurrences after a time, as local times.
fn list(expression: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let schedule = RunSchedule::cron(expression, zone).unwrap();
    schedule.after(at(after)).take(count).map(|at| schedule.local(at)).collect()
}

#[test]
fn a_time_in_the_gap_is_at_its_end_once() {
    for (expression, zone, after, expected) in [
        (
            "30 2 * * *",
            "Europe/Paris",
            "2026-03-27T12:00Z",
            &[
                "2026-03-28T02:30:00+01:00",
                "2026-03-29T03:00:00+02:00",
                "2026-03-30T02:30:00+02:00",
            ][..],
        ),
        (
            "0,15,30 2,3 * * *",
            "Europe/Paris",
            "2026-03-29T00:30Z",
            &[
                "2026-03-29T03:00:00+02:00",
                "2026-03-29T03:15:00+02:00",
                "2026-03-29T03:30:00+02:00",
            ],
        ),
        (
            "30 2 * * *",
            "America/New_York",
            "2026-03-07T12:00Z",
            &["2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"],
        ),
        // Half an hour.
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T00:00Z",
            &["2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"],
        ),
        // The gap is at midnight.
        (
            "0 0 * * *",
            "Africa/Cairo",
            "2026-04-23T12:00Z",
            &["2026-04-24T01:00:00+03:00", "2026-04-25T00:00:00+03:00"],
        ),
    ] {
        assert_eq!(list(expression, zone, after, expected.len()), expected, "{expression} {zone}");
    }
}

#[test]
fn a_time_that_comes_twice_is_at_the_first() {
    for (expression, zone, after, expected) in [
        (
            "30 2 * * *",
            "Europe/Paris",
            "2026-10-24T12:00Z",
            &["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"][..],
        ),
        (
            "30 1 * * *",
            "America/New_York",
            "2026-11-01T04:00Z",
            &["2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"],
        ),
        (
            "45 1 * * *",
            "Australia/Lord_Howe",
            "2026-04-04T00:00Z",
            &["2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30"],
        ),
        // Asked between the two.
        ("30 2 * * *", "Europe/Paris", "2026-10-25T01:00Z", &["2026-10-26T02:30:00+01:00"]),
    ] {
        assert_eq!(list(expression, zone, after, expected.len()), expected, "{expression} {zone}");
    }
}

#[test]
fn stars_follow_elapsed_time() {
    assert_eq!(
        list("*/30 * * * *", "Europe/Paris", "2026-03-29T00:00Z", 4),
        [
            "2026-03-29T01:30:00+01:00",
            "2026-03-29T03:00:00+02:00",
            "2026-03-29T03:30:00+02:00",
            "2026-03-29T04:00:00+02:00"
        ]
    );
    assert_eq!(
        list("0 * * * *", "Europe/Paris", "2026-10-25T00:00Z", 3),
        ["2026-10-25T02:00:00+01:00", "2026-10-25T03:00:00+01:00", "2026-10-25T04:00:00+01:00"]
    );
    // The hour is named, the minute is not: nothing in the gap, and twice when it comes twice.
    assert_eq!(
        list("*/30 2 * * *", "Europe/Paris", "2026-03-28T02:00Z", 2),
        ["2026-03-30T02:00:00+02:00", "2026-03-30T02:30:00+02:00"]
    );
    assert_eq!(
        list("*/30 2 * * *", "Europe/Paris", "2026-10-24T12:00Z", 4),
        [
            "2026-10-25T02:00:00+02:00",
            "2026-10-25T02:30:00+02:00",
            "2026-10-25T02:00:00+01:00",
            "2026-10-25T02:30:00+01:00"
        ]
    );
}

#[test]
fn a_change_of_the_clock_is_told() {
    for (expression, after, expected) in [
        ("30 2 * * *", "2026-03-28T12:00Z", [Some(ClockChange::Moved), None]),
        ("30 2 * * *", "2026-10-24T12:00Z", [Some(ClockChange::First), None]),
        ("*/30 2 * * *", "2026-10-25T00:10Z", [Some(ClockChange::First); 2]),
        ("*/30 2 * * *", "2026-10-25T00:50Z", [Some(ClockChange::Second); 2]),
    ] {
        let schedule = RunSchedule::cron(expression, "Europe/Paris").unwrap();
        let changes = schedule.after(at(after)).take(2).map(|at| schedule.clock_change(at));
        let changes: Vec<_> = changes.collect();
        if expression.starts_with('*') && after.ends_with("00:10Z") {
            // 02:30 of the first pass, 02:00 of the second.
            assert_eq!(changes, [Some(ClockChange::First), Some(ClockChange::Second)]);
        } else {
            assert_eq!(changes, expected, "{expression} {after}");
        }
    }
}

#[test]
fn days_are_found_across_years_and_centuries() {
    let years = |expression: &str, after: &str, count| -> Vec<String> {
        let days = list(expression, "UTC", after, count).into_iter();
        days.map(|day| day[..10].to_owned()).collect()
    };
    let leap = ["2096-02-29", "2104-02-29"];
    assert_eq!(years("0 0 29 2 *", "2094-01-01T00:00Z", 2), leap);
    assert_eq!(years("0 0 29 2 *", "2026-01-01T00:00Z", 1), ["2028-02-29"]);
    // A leap day that is a Sunday: with a star at the begin of a day field, both have to match.
    assert_eq!(years("0 0 29 2 */7", "2088-03-01T00:00Z", 1), ["2128-02-29"]);
    // Either of two days that are named.
    assert_eq!(
        years("0 0 13 * FRI", "2026-11-06T00:00Z", 3),
        ["2026-11-13", "2026-11-20", "2026-11-27"]
    );
    assert_eq!(years("0 0 L * *", "2026-02-01T00:00Z", 2), ["2026-02-28", "2026-03-31"]);
    assert_eq!(years("0 0 L * *", "2026-12-01T00:00Z", 1), ["2026-12-31"]);
    assert_eq!(years("0 0 * * 5L", "2026-12-01T00:00Z", 2), ["2026-12-25", "2027-01-29"]);
    assert_eq!(
        years("0 0 * * 7", "2026-11-19T00:00Z", 2),
        years("0 0 * * sun", "2026-11-19T00:00Z", 2)
    );
    assert_eq!(years("@weekly", "2026-11-19T00:00Z", 1), ["2026-11-22"]);
}

#[test]
fn the_newest_occurrence_is_found() {
    for expression in ["* * * * *", "30 2 * * *", "0 0 29 2 *", "*/7 3 * * 1-5"] {
        let schedule = RunSchedule::cron(expression, "Europe/Paris").unwrap();
        let (from, to) = (at("2023-10-20T00:00Z"), at("2026-11-19T10:10:30Z"));
        let latest = schedule.latest(from, to).unwrap();
        assert!(latest <= to && schedule.next(latest).unwrap() > to, "{expression}");
        assert_eq!(schedule.latest(latest, to), None);
        assert_eq!(schedule.latest(from, latest), Some(latest));
        assert_eq!(schedule.count(latest - 1, to, 9), 1);
    }
}

#[test]
fn periods_are_aligned() {
    let seconds = Duration::from_secs;
    let next = |period, zone: &str, after: &str| {
        let schedule = RunSchedule::period(period, zone).unwrap();
        schedule.local(schedule.next(at(after)).unwrap())
    };
    assert_eq!(next(seconds(86_400), "UTC", "2026-11-19T20:00Z"), "2026-11-20T00:00:00+00:00");
    assert_eq!(next(seconds(3_600), "UTC", "2026-11-19T20:00Z"), "2026-11-19T21:00:00+00:00");
    assert_eq!(
        next(seconds(3_600), "UTC", "2026-11-19T20:59:59.999Z"),
        "2026-11-19T21:00:00+00:00"
    );
    let days = |count: u64| seconds(count * 86_400);
    for (count, zone, after, expected) in [
        (1, "Europe/Paris", "2026-03-29T12:00Z", "2026-03-30T00:00:00+02:00"),
        (1, "Europe/Paris", "2026-10-25T12:00Z", "2026-10-26T00:00:00+01:00"),
        (1, "Africa/Cairo", "2026-04-23T12:00Z", "2026-04-24T01:00:00+03:00"),
        // From Thursday, 1970-01-01.
        (7, "America/New_York", "2026-11-19T20:00Z", "2026-11-26T00:00:00-05:00"),
    ] {
        assert_eq!(next(days(count), zone, after), expected);
    }
}
