//! Free ports for servers.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

use anyhow::{Context, Result};

/// Ports below the ephemeral range, so that no outgoing connection takes the port of a server that
/// is down for a moment, and no client connects to itself. Low enough for [`BUS_OFFSET`] as well.
const PORTS: Range<u16> = 10_500..22_000;

/// Offset of the second port of a Redis in cluster mode.
const BUS_OFFSET: u16 = 10_000;

/// Returns a port that was free a moment ago, as was its cluster bus port.
pub(crate) fn free_port() -> Result<u16> {
    let skipped = random() % PORTS.len() as u64;
    PORTS
        .skip(skipped as usize)
        .chain(PORTS)
        .find(|&port| is_free(port) && is_free(port + BUS_OFFSET))
        .context("every port for test servers is taken")
}

/// Returns a number that differs in every call and process, for a test's port or password.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Attempts to start: another process may take a port between the check and the use.
const PORT_ATTEMPTS: usize = 3;

/// Calls `start` with free ports until it succeeds, at most three times; returns the port.
pub(crate) fn on_a_free_port(mut start: impl FnMut(u16) -> Result<()>) -> Result<u16> {
    for _ in 1..PORT_ATTEMPTS {
        let port = free_port()?;
        if start(port).is_ok() {
            return Ok(port);
        }
    }
    let port = free_port()?;
    start(port)?;
    Ok(port)
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn a_taken_port_is_not_offered() {
        let port = free_port().unwrap();
        let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        assert!(!is_free(port));
    }

    #[test]
    fn a_failed_start_is_tried_elsewhere() {
        let mut tried = Vec::new();
        let port = on_a_free_port(|port| {
            tried.push(port);
            if tried.len() < 2 { bail!("taken meanwhile") } else { Ok(()) }
        });
        assert_eq!(port.unwrap(), tried[1]);
    }

    #[test]
    fn the_last_failure_is_told() {
        let error = on_a_free_port(|_| bail!("bad setting")).unwrap_err();
        assert_eq!(error.to_string(), "bad setting");
    }
}
