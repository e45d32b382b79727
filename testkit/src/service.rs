//! Servers that the test run provides to every test process.

use std::env;

/// Variable with the URL of the PostgreSQL server for tests.
pub const TEST_POSTGRES: &str = "TENURE_TEST_POSTGRES";

/// Variable with the URL of the Redis server for tests.
pub const TEST_REDIS: &str = "TENURE_TEST_REDIS";

/// Variable with the URL of the etcd server for tests.
pub const TEST_ETCD: &str = "TENURE_TEST_ETCD";

/// Variable with the path of a Python that has the MCP client of version 1, and FastMCP.
pub const TEST_MCP_1: &str = "TENURE_TEST_MCP_1";

/// Variable with the path of a Python that has the MCP client of version 2.
pub const TEST_MCP_2: &str = "TENURE_TEST_MCP_2";

/// Variable with the path of a Python that has other implementations of cron expressions.
pub const TEST_CRON: &str = "TENURE_TEST_CRON";

/// Returns the value of the variable `name`, or `None` on a laptop without such a server.
///
/// # Panics
///
/// Panics if the variable is absent and `CI` is set: a skipped test would look like a passed one.
#[must_use]
pub fn service(name: &str) -> Option<String> {
    lookup(name, |variable| env::var(variable).ok())
}

#[expect(clippy::panic, reason = "only tests call this, and a panic is how a test fails")]
fn lookup(name: &str, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let given = |name| variable(name).filter(|value| !value.is_empty());
    let url = given(name);
    if url.is_none() && given("CI").is_some() {
        panic!("{name} is not set, and tests must not be skipped in CI; run `cargo xtask test`");
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_service_is_skipped_on_a_laptop() {
        assert_eq!(lookup(TEST_REDIS, |_| None), None);
    }

    #[test]
    #[should_panic(expected = "TENURE_TEST_REDIS is not set")]
    fn a_missing_service_fails_in_ci() {
        lookup(TEST_REDIS, |name| (name == "CI").then(|| "true".to_owned()));
    }

    #[test]
    fn a_given_service_is_used_in_ci() {
        assert_eq!(lookup(TEST_REDIS, |name| Some(name.to_owned())), Some(TEST_REDIS.to_owned()));
    }
}
