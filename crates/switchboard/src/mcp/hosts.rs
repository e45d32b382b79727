//! Allowed host names. They protect against DNS rebinding: a web page can point its own name to
//! this server, but cannot change the name that the browser sends.

use hyper::HeaderMap;
use hyper::header::{HOST, HeaderValue, ORIGIN};

use crate::http::response::{ApiError, ApiResult};

/// Allowed names in lower case; empty allows all.
#[derive(Debug)]
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    pub(super) fn new(names: &[String]) -> Self {
        Self(names.iter().map(|name| name.to_ascii_lowercase()).collect())
    }

    /// Checks the `Host` header.
    pub(crate) fn check(&self, headers: &HeaderMap) -> ApiResult<()> {
        match self.0.is_empty() || self.allows(host(headers)) {
            true => Ok(()),
            false => Err(ApiError::forbidden("this host is not in --allowed-host")),
        }
    }

    /// Rejects requests that a page of another site makes a browser send, possibly with stored
    /// credentials.
    pub(crate) fn check_origin(&self, headers: &HeaderMap) -> ApiResult<()> {
        let host = host(headers);
        let is_own =
            |origin: &HeaderValue| origin.to_str().is_ok_and(|origin| self.is_own(origin, host));
        if headers.get_all(ORIGIN).iter().all(is_own) {
            return Ok(());
        }
        let message = "Origin differs from Host; allow it with --allowed-host";
        Err(ApiError::forbidden(message))
    }

    fn is_own(&self, origin: &str, host: &str) -> bool {
        let Some((scheme, named)) = origin.split_once("://") else { return false };
        let usual = match scheme {
            "http" => ":80",
            "https" => ":443",
            _ => "",
        };
        let bare = |name: &str| name.strip_suffix(usual).unwrap_or(name).to_ascii_lowercase();
        bare(named) == bare(host) || (!self.0.is_empty() && self.allows(named))
    }

    /// Returns whether a name is allowed. An entry without a port allows all ports.
    fn allows(&self, named: &str) -> bool {
        let named = named.to_ascii_lowercase();
        let bare = without_port(&named);
        self.0.iter().any(|known| *known == named || *known == bare)
    }
}

fn host(headers: &HeaderMap) -> &str {
    headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default()
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_without_case_and_with_their_port_if_told() {
        let hosts = |names: &[&str]| {
            Hosts::new(&names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>())
        };
        let of = |host: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static(host));
            headers
        };
        let some = hosts(&["Board.example", "[::1]", "10.0.0.1:8420"]);
        for good in ["board.example", "BOARD.example:9", "[::1]:80", "[::1]", "10.0.0.1:8420"] {
            assert!(some.check(&of(good)).is_ok(), "{good}");
        }
        for bad in ["", "evil.example", "board.example.evil", "10.0.0.1", "10.0.0.1:80", "::1"] {
            assert!(some.check(&of(bad)).is_err(), "{bad}");
        }
        assert!(some.check(&HeaderMap::new()).is_err());
        let own = |hosts: &Hosts, host: &'static str, origin: &'static str| {
            let mut headers = of(host);
            headers.insert(ORIGIN, HeaderValue::from_static(origin));
            hosts.check_origin(&headers).is_ok()
        };
        let any = hosts(&[]);
        for (host, origin) in [
            ("board.example", "https://board.example"),
            ("Board.example:8420", "http://board.Example:8420"),
            ("board.example:443", "https://board.example"),
            ("127.0.0.1", "http://127.0.0.1:80"),
        ] {
            assert!(own(&any, host, origin), "{host} {origin}");
        }
        for (host, origin) in [
            ("board.example", "null"),
            ("board.example", "https://evil.example"),
            ("board.example", "https://board.example:8420"),
            ("board.example", "http://board.example.evil"),
            ("", "http://board.example"),
        ] {
            assert!(!own(&any, host, origin), "{host} {origin}");
        }
        // Pages of an allowed host are accepted, even if a proxy changes the `Host` header.
        assert!(own(&some, "10.0.0.1:8420", "https://board.example"));
        assert!(!own(&some, "10.0.0.1:8420", "https://evil.example"));
        assert!(any.check_origin(&of("board.example")).is_ok());
        assert!(hosts(&[]).check(&of("evil.example")).is_ok());
    }
}
