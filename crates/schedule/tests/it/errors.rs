//! Invalid schedules are refused, with the field and the reason.

use std::time::Duration;

use tenure_core::Code;
use tenure_schedule::RunSchedule;

#[track_caller]
fn refused(schedule: Result<RunSchedule, tenure_core::StoreError>) -> String {
    let error = schedule.unwrap_err();
    assert_eq!(error.code(), Code::BadSchedule);
    error.problem().detail.clone()
}

#[test]
fn a_wrong_field_is_named_with_the_reason() {
    for (expression, parts) in [
        (
            "60 * * * *",
            &["the field minute, \"60\": ", "number out of bounds ", "(values: 0-59)"][..],
        ),
        ("0 24 * * *", &["the field hour, \"24\": ", "number out of bounds "]),
        ("0 0 32 * *", &["the field day of month, \"32\": "]),
        ("0 0 * 13 *", &["the field month, \"13\": ", "1-12 or JAN-DEC"]),
        ("0 0 * * 8", &["the field day of week, \"8\": ", "0-7 or SUN-SAT"]),
        ("x 0 * * *", &["the field minute, \"x\": "]),
        ("JAN 0 * * *", &["the field minute, \"JAN\": JAN is not a name of this field"]),
        ("0 0 * MON *", &["the field month, \"MON\": MON is not"]),
        ("0 0 * * +MON", &["the field day of week", "the character + has no meaning"]),
        ("0 0 ? * MON", &["the field day of month", "the character ? has"]),
        ("0 0 * * MONDAY", &["the field day of week, \"MONDAY\": "]),
        ("5-1 * * * *", &["the field minute, \"5-1\": ", "range out of bounds "]),
        ("*/0 * * * *", &["the field minute, \"*/0\": "]),
        ("1,,2 * * * *", &["the field minute, \"1,,2\": an item of the list is empty"]),
        ("0 0 30 2 *", &["\"0 0 30 2 *\" never occurs"]),
        ("0 0 * *", &["has 4 fields instead of 5: minute, hour, day of month, month"]),
        ("0 0 0 * * *", &["has 6 fields instead of 5", "--tz"]),
        ("0 3 a b c d e f", &["has 8 fields instead of 5", "in quotes"]),
        ("", &["has 0 fields"]),
        ("@reboot", &["\"@reboot\" is not one of @hourly, @daily"]),
        ("0 0 * * \u{1b}", &["the field day of week, \"\\u{1b}\""]),
    ] {
        let told = refused(RunSchedule::cron(expression, "UTC"));
        for part in parts {
            assert!(told.contains(part), "{expression}: {told}");
        }
        assert!(!told.contains('\n'), "{told}");
    }
    let long = format!("{} * * * *", vec!["1"; 200].join(","));
    assert!(refused(RunSchedule::cron(&long, "UTC")).contains("the limit is 256"));
}

#[test]
fn a_time_zone_that_does_not_exist_is_refused() {
    for zone in ["Europe/Pariss", "", "../../etc/passwd", "CEST+9", "local"] {
        let told = refused(RunSchedule::cron("0 0 * * *", zone));
        assert!(told.contains("there is no time zone"), "{zone}: {told}");
    }
    let found = RunSchedule::cron("0 0 * * *", "europe/paris").unwrap();
    assert_eq!(found.zone_name(), "Europe/Paris");
}

#[test]
fn a_period_outside_its_limits_is_refused() {
    for (seconds, zone, part) in [
        (0, "UTC", "the period 0s is outside the limits: 1s to 366d"),
        (367 * 86_400, "UTC", "the period 367d is outside"),
        (3_600, "Europe/Paris", "the period 1h is not a whole number of days"),
    ] {
        let told = refused(RunSchedule::period(Duration::from_secs(seconds), zone));
        assert!(told.contains(part), "{told}");
    }
}
