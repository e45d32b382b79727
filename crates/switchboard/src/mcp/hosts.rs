//! Under which names this may be asked: a page that a browser got elsewhere can have its own name
//! lead here, but not change the name that the browser sends.

use hyper::HeaderMap;
use hyper::header::HOST;

use crate::http::answer::{Refusal, Refused};

/// The names, in small letters; all when there are none.
#[derive(Debug)]
pub(super) struct Hosts(Vec<String>);

impl Hosts {
    pub(super) fn new(names: Vec<String>) -> Self {
        Self(names.into_iter().map(|name| name.to_ascii_lowercase()).collect())
    }

    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), Refused> {
        let named = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        match self.0.is_empty() || self.allows(named) {
            true => Ok(()),
            false => Err(Refusal::forbidden("this host is not one of --allowed-host")),
        }
    }

    /// A name without a port allows all ports.
    fn allows(&self, named: &str) -> bool {
        let named = named.to_ascii_lowercase();
        let bare = without_port(&named);
        self.0.iter().any(|known| *known == named || *known == bare)
    }
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
        let hosts = |names: &[&str]| Hosts::new(names.iter().map(|it| (*it).to_owned()).collect());
        let of = |host: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, hyper::header::HeaderValue::from_static(host));
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
        assert!(hosts(&[]).check(&of("evil.example")).is_ok());
    }
}
