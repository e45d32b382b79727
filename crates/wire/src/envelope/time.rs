//! Times in RFC 3339 format, in microseconds.

/// Parsed time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParsedTime {
    /// Unix microseconds, rounded down.
    pub(crate) micros: i64,
    /// Range of the digits that are finer than microseconds.
    pub(crate) finer: (usize, usize),
}

/// Reason why a text is not a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// Only the time zone is missing.
    NoOffset,
    /// Anything else.
    Form,
}

const HOUR_SECONDS: i64 = 3_600;
const SECOND: i64 = 1_000_000;

/// Reads `YYYY-MM-DDThh:mm:ss[.f{1,9}](Z|+hh:mm|-hh:mm)`, an existing date in the years 1 to 9999
/// of UTC, without leap seconds.
pub(crate) fn read(text: &[u8]) -> Result<ParsedTime, Wrong> {
    let (head, rest) = text.split_at_checked(19).ok_or(Wrong::Form)?;
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if marks.iter().any(|(at, mark)| head[*at] != *mark) {
        return Err(Wrong::Form);
    }
    let part = |from, to| digits(&head[from..to]).ok_or(Wrong::Form);
    let days = days(part(0, 4)?, part(5, 7)?, part(8, 10)?).ok_or(Wrong::Form)?;
    let (hour, minute, second) = (part(11, 13)?, part(14, 16)?, part(17, 19)?);
    if hour > 23 || minute > 59 || second > 59 {
        return Err(Wrong::Form);
    }
    let (fraction, offset) = match rest.strip_prefix(b".") {
        None => (&rest[..0], rest),
        Some(rest) => {
            let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if !(1..=9).contains(&count) {
                return Err(Wrong::Form);
            }
            rest.split_at(count)
        }
    };
    let kept = fraction.len().min(6);
    let micros = fraction[..kept].iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'))
        * 10_i64.pow(6 - kept as u32);
    let seconds = days * 86_400 + hour * HOUR_SECONDS + minute * 60 + second - ahead(offset)?;
    let years = -62_135_596_800..253_402_300_800;
    if !years.contains(&seconds) {
        return Err(Wrong::Form);
    }
    Ok(ParsedTime { micros: seconds * SECOND + micros, finer: (20 + kept, 20 + fraction.len()) })
}

/// Returns the seconds by which local time is ahead of UTC.
fn ahead(offset: &[u8]) -> Result<i64, Wrong> {
    let (sign, hour, minute) = match offset {
        [] => return Err(Wrong::NoOffset),
        b"Z" => return Ok(0),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => (sign, [*h1, *h2], [*m1, *m2]),
        _ => return Err(Wrong::Form),
    };
    match (digits(&hour), digits(&minute)) {
        (Some(hour @ ..=23), Some(minute @ ..=59)) => {
            let seconds = hour * HOUR_SECONDS + minute * 60;
            Ok(if *sign == b'+' { seconds } else { -seconds })
        }
        _ => Err(Wrong::Form),
    }
}

fn digits(text: &[u8]) -> Option<i64> {
    // Callers pass at most four digits.
    text.iter().try_fold(0, |sum, digit| {
        digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0'))
    })
}

/// Returns the days since 1970 of a date from the year 1 on; `None` if there is no such day.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(leap),
        1..=12 => 31,
        _ => return None,
    };
    if year == 0 || !(1..=last).contains(&day) {
        return None;
    }
    // The year begins in March, so that the leap day is its last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let in_year = (153 * month + 2) / 5 + day - 1;
    Some(year * 365 + year / 4 - year / 100 + year / 400 + in_year - 719_468)
}

/// Formats a time as `YYYYMMDDHH` in UTC.
pub(crate) fn hour(micros: i64) -> String {
    let hours = micros.div_euclid(HOUR_SECONDS * SECOND);
    let days = hours.div_euclid(24) + 719_468;
    let era = days.div_euclid(146_097);
    let in_era = days.rem_euclid(146_097);
    let in_era_years = (in_era - in_era / 1_460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * in_era_years + in_era_years / 4 - in_era_years / 100);
    let shifted = (5 * in_year + 2) / 153;
    let day = in_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + in_era_years + i64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}{:02}", hours.rem_euclid(24))
}
