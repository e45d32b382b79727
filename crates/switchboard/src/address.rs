//! Client addresses, with and without trusted proxies.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use hyper::HeaderMap;

/// Returns the address by which failures are counted: without port, for IPv6 the /64 network.
///
/// Behind `hops` proxies this is the address that the outermost one saw: each appends the address
/// it sees to `X-Forwarded-For`; clients can forge entries further left. If the entry is missing or
/// unreadable, the peer itself counts.
pub(crate) fn of_client(peer: IpAddr, headers: &HeaderMap, hops: usize) -> String {
    let client = match hops {
        0 => None,
        hops => forwarded(headers, hops),
    };
    by_network(client.unwrap_or(peer))
}

fn forwarded(headers: &HeaderMap, hops: usize) -> Option<IpAddr> {
    let mut left = hops;
    let lines: Vec<_> = headers.get_all("x-forwarded-for").iter().collect();
    for line in lines.into_iter().rev() {
        for part in line.to_str().ok()?.rsplit(',') {
            left -= 1;
            if left == 0 {
                return without_port(part.trim());
            }
        }
    }
    None
}

fn without_port(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address.ip());
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok()
}

/// Returns the address itself, or the /64 network of an IPv6 address.
pub(crate) fn by_network(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{}/64", Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

/// Returns whether a `Host` or an `Origin` names this machine.
pub(crate) fn is_this_machine(host: &str) -> bool {
    let host = host.split_once("://").map_or(host, |(_, host)| host);
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(name, _)| name),
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    let address = name.parse::<IpAddr>().map(|address| address.to_canonical().is_loopback());
    address.unwrap_or_else(|_| name.eq_ignore_ascii_case("localhost"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(lines: &[&str], hops: usize) -> String {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("x-forwarded-for", line.parse().unwrap());
        }
        of_client("192.0.2.9".parse().unwrap(), &headers, hops)
    }

    #[test]
    fn what_a_client_writes_itself_does_not_count() {
        assert_eq!(seen(&["1.1.1.1"], 0), "192.0.2.9");
        assert_eq!(seen(&["1.1.1.1, 2.2.2.2"], 1), "2.2.2.2");
        assert_eq!(seen(&["1.1.1.1, 2.2.2.2"], 2), "1.1.1.1");
        assert_eq!(seen(&["9.9.9.9, 1.1.1.1", "2.2.2.2"], 2), "1.1.1.1");
    }

    #[test]
    fn what_cannot_be_read_counts_as_the_peer() {
        for bad in ["", "unknown", "1.1.1.1.1", "a, ,", "1.1.1.1, _hidden", "[::1", "1.1.1.1:99999"]
        {
            assert_eq!(seen(&[bad], 1), "192.0.2.9", "{bad}");
        }
        assert_eq!(seen(&["1.1.1.1"], 2), "192.0.2.9");
        assert_eq!(seen(&[], 3), "192.0.2.9");
    }

    #[test]
    fn ports_go_and_networks_stay() {
        assert_eq!(seen(&["1.1.1.1:80"], 1), "1.1.1.1");
        assert_eq!(seen(&["[2001:db8:1:2:3::4]:80"], 1), "2001:db8:1:2::/64");
        assert_eq!(seen(&["[2001:db8:1:2:9::]"], 1), "2001:db8:1:2::/64");
        assert_eq!(seen(&["2001:db8:1:2::5"], 1), "2001:db8:1:2::/64");
        assert_eq!(seen(&["::ffff:1.2.3.4"], 1), "1.2.3.4");
    }

    #[test]
    fn this_machine_has_few_names() {
        for good in ["localhost", "LOCALHOST:8420", "127.0.0.1:1", "127.9.9.9", "[::1]:8420"] {
            assert!(is_this_machine(good), "{good}");
            assert!(is_this_machine(&format!("http://{good}")), "{good}");
        }
        for bad in ["", "example.com", "localhost.example.com", "10.0.0.1:80", "[::2]", "null"] {
            assert!(!is_this_machine(bad), "{bad}");
        }
    }
}
