//! Formatting of counts, durations and text for people.

use std::time::Duration;

/// Formats a count, such as `1 duty` or `2 duties`.
pub fn counted(count: impl TryInto<u64> + Copy, one: &str, many: &str) -> String {
    // A count that does not fit is not one either.
    let count = count.try_into().unwrap_or(u64::MAX);
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Formats a duration as options accept it: `500ms`, `1.5s`, `1m30s`, `2h`, `1d`.
pub fn span(time: Duration) -> String {
    if time.is_zero() {
        return "0s".to_owned();
    }
    if time < Duration::from_secs(1) {
        return format!("{time:?}");
    }
    let seconds = time.as_secs();
    let parts = [(seconds / 86_400, "d"), (seconds / 3_600 % 24, "h"), (seconds / 60 % 60, "m")];
    let mut text: String =
        parts.iter().filter(|(n, _)| *n > 0).map(|(n, unit)| format!("{n}{unit}")).collect();
    let rest =
        Duration::from_secs(seconds % 60) + Duration::from_millis(time.subsec_millis().into());
    if !rest.is_zero() || text.is_empty() {
        text.push_str(&format!("{}s", rest.as_secs_f64()));
    }
    text
}

/// Escapes text for a terminal, on one line, including control characters.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\'' => escaped.push(c),
            c => escaped.extend(c.escape_debug()),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_nothing_to_obey() {
        for (text, expected) in [
            ("plain 'text' \"é🦀\"", "plain 'text' \"é🦀\""),
            ("a\nb\tc\\d", "a\\nb\\tc\\\\d"),
            ("\u{1b}[31mred\u{7}", "\\u{1b}[31mred\\u{7}"),
            ("\u{9b}2J\u{202e}x", "\\u{9b}2J\\u{202e}x"),
        ] {
            assert_eq!(escaped(text), expected);
        }
    }

    #[test]
    fn one_is_singular() {
        let all = [0, 1, 2].map(|count: usize| counted(count, "duty", "duties"));
        assert_eq!(all, ["0 duties", "1 duty", "2 duties"]);
    }

    #[test]
    fn a_time_is_written_as_options_take_it() {
        for (ms, text) in [
            (0, "0s"),
            (500, "500ms"),
            (1_000, "1s"),
            (1_500, "1.5s"),
            (90_000, "1m30s"),
            (7_200_000, "2h"),
            (86_400_000, "1d"),
            (90_061_500, "1d1h1m1.5s"),
        ] {
            assert_eq!(span(Duration::from_millis(ms)), text);
        }
    }
}
