//! Prometheus text format, version 0.0.4.
//!
//! It is written without a library, because a series must end with its subject: `metrics` removes
//! none by name, and `prometheus-client` writes OpenMetrics, where older scrapers see no type of a
//! counter. Values are read at each request, without a registry.

use std::fmt::{Display, Write};

/// Content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Upper bounds of buckets for durations, in seconds. A store is too slow above half a second.
pub const DURATIONS: [f64; 13] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Values of a histogram.
#[derive(Clone, Copy, Debug)]
pub struct Histogram<'a> {
    /// Upper bounds of the buckets.
    pub bounds: &'a [f64],
    /// Observations per bucket.
    pub buckets: &'a [u64],
    /// Number of observations.
    pub count: u64,
    /// Sum of observations.
    pub sum: f64,
}

/// Writer for metrics.
#[derive(Debug, Default)]
pub struct MetricsText(String);

impl MetricsText {
    /// Returns the text.
    pub fn finish(self) -> String {
        self.0
    }

    /// Begins a metric; its samples follow.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String never fails.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Writes one series and its value.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (n, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"", if n == 0 { '{' } else { ',' });
            for c in text.chars() {
                match c {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    c => self.0.push(c),
                }
            }
            self.0.push('"');
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// Writes the series of a histogram.
    pub fn histogram(&mut self, name: &str, labels: &[(&str, &str)], histogram: Histogram<'_>) {
        let bucket = format!("{name}_bucket");
        let mut up_to = 0;
        for (bound, count) in histogram.bounds.iter().zip(histogram.buckets) {
            up_to += count;
            self.sample(&bucket, &with_bound(labels, &bound.to_string()), up_to);
        }
        self.sample(&bucket, &with_bound(labels, "+Inf"), histogram.count);
        self.sample(&format!("{name}_sum"), labels, histogram.sum);
        self.sample(&format!("{name}_count"), labels, histogram.count);
    }
}

fn with_bound<'a>(labels: &[(&'a str, &'a str)], bound: &'a str) -> Vec<(&'a str, &'a str)> {
    labels.iter().copied().chain([("le", bound)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_buckets_add_up() {
        let mut text = MetricsText::default();
        text.family("a_total", "counter", "How many.");
        text.sample("a_total", &[], 1);
        text.sample("a_total", &[("x", "q\"b\\n\n")], 2);
        let histogram = Histogram { bounds: &[0.5, 1.0], buckets: &[1, 2], count: 4, sum: 3.5 };
        text.histogram("h", &[("o", "p")], histogram);
        let expected = [
            "# HELP a_total How many.",
            "# TYPE a_total counter",
            "a_total 1",
            r#"a_total{x="q\"b\\n\n"} 2"#,
            r#"h_bucket{o="p",le="0.5"} 1"#,
            r#"h_bucket{o="p",le="1"} 3"#,
            r#"h_bucket{o="p",le="+Inf"} 4"#,
            r#"h_sum{o="p"} 3.5"#,
            r#"h_count{o="p"} 4"#,
            "",
        ];
        assert_eq!(text.finish(), expected.join("\n"));
    }
}
