//! Identity of a store, independent of how its URL is written.

use std::path::{Path, PathBuf};

use super::{StoreUrl, UrlScheme, parts};

impl StoreUrl {
    /// Returns the identity of the store, independent of the URL's spelling and the working
    /// directory, without secrets. Paths are absolute, without symbolic links. Default ports and
    /// names are filled in. Users and other parts that do not select the store are omitted.
    pub fn place(&self) -> String {
        // `parse` has split this text before; if it cannot be split again, it is not shown.
        let (credentials, place, query) = parts(&self.rest).unwrap_or((None, "(not shown)", ""));
        let (hosts, path) = place.split_once('/').unwrap_or((place, ""));
        let own = |default: &str| plain(self.namespace.as_deref().unwrap_or(default).as_bytes());
        match self.kind {
            UrlScheme::File => format!("file:{}", whole(&self.rest)),
            UrlScheme::Sqlite => format!("sqlite:{}", whole(&self.rest)),
            // A port serves either plain or encrypted connections, so both schemes name one store.
            UrlScheme::Redis | UrlScheme::Rediss => {
                let hosts = with_ports(hosts, "6379").join(",");
                let path = path.trim_end_matches('/');
                let number = if path.is_empty() { "0" } else { path };
                format!("redis://{hosts}/{number}?prefix={}", own(""))
            }
            UrlScheme::Etcd => {
                // The order of a cluster's members does not matter.
                let mut hosts = with_ports(hosts, "2379");
                hosts.sort();
                format!("etcd://{}?prefix={}", hosts.join(","), own("tenure/"))
            }
            UrlScheme::Postgres => {
                let user = credentials.and_then(|text| text.split(':').next());
                let schema = own("tenure");
                postgres_place(user.unwrap_or_default(), hosts, path, query, &schema)
            }
        }
    }
}

/// Returns an absolute path, with symbolic links resolved as far as it exists.
pub(crate) fn resolved(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    let file = folder.zip(path.file_name()).map(|(folder, name)| folder.join(name));
    path.canonicalize().ok().or(file).unwrap_or(path)
}

fn whole(path: &str) -> String {
    resolved(Path::new(path)).display().to_string()
}

/// Escapes text so that nothing in it can be mistaken for a separator.
fn plain(bytes: &[u8]) -> String {
    const ESCAPED: percent_encoding::AsciiSet = percent_encoding::NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'_')
        .remove(b'.')
        .remove(b':')
        .remove(b'/');
    percent_encoding::percent_encode(bytes, &ESCAPED).to_string()
}

/// Returns the identity of a database, as its driver reads the URL. The driver uses the first host
/// that answers, so the order of hosts is kept.
fn postgres_place(user: &str, hosts: &str, path: &str, query: &str, schema: &str) -> String {
    let decoded = |text: &str| percent_encoding::percent_decode_str(text).collect::<Vec<u8>>();
    let parameters = query.split('&').filter_map(|parameter| parameter.split_once('='));
    let parameters: Vec<(Vec<u8>, &str)> =
        parameters.map(|(name, value)| (decoded(name), value)).collect();
    let all = |name: &str| -> Vec<&str> {
        let of_name = parameters.iter().filter(|(given, _)| given == name.as_bytes());
        of_name.map(|(_, value)| *value).collect()
    };
    let last = |name: &str, otherwise: &str| decoded(all(name).last().unwrap_or(&otherwise));
    let (user, database) = (last("user", user), last("dbname", path));
    // The database defaults to the user's name, and the user to the one that runs the process. No
    // path can be mistaken for `#uid=`.
    let database = match (database.is_empty(), user.is_empty()) {
        (false, _) => format!("/{}", plain(&database)),
        (true, false) => format!("/{}", plain(&user)),
        (true, true) => format!("#uid={}", rustix::process::getuid().as_raw()),
    };
    let hosts = with_ports(hosts, "5432").join(",");
    let mut text = format!("postgres://{hosts}{database}?schema={schema}");
    let ports = all("port");
    for name in ["host", "hostaddr"] {
        for value in all(name) {
            let value = plain(&decoded(value));
            text.push_str(&format!("&{name}={value}"));
        }
    }
    // The ports of hosts before the path are part of `hosts`.
    let default = if hosts.is_empty() { &["5432"][..] } else { &[] };
    for port in if ports.is_empty() { default } else { &ports[..] } {
        text.push_str(&format!("&port={}", plain(&decoded(port))));
    }
    text
}

/// Returns lower-case hosts with ports. The path of a socket, which is escaped, is unchanged.
fn with_ports(hosts: &str, default: &str) -> Vec<String> {
    let with_port = |host: &str| {
        let is_path = host.starts_with('%');
        let host = if is_path { host.to_owned() } else { host.to_lowercase() };
        // The colons of an IPv6 address are in brackets.
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        if has_port || host.is_empty() { host } else { format!("{host}:{default}") }
    };
    hosts.split(',').map(with_port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_has_one_place_however_it_is_written() {
        let place = |url: &str| StoreUrl::parse(url).unwrap().place();
        for same in [
            &["redis://h", "redis://:s3cret@H:6379/0", "rediss://me:s3cret@h/"][..],
            &["etcd://b:2,a:1", "etcd://me:s3cret@a:1,b:2/?prefix=tenure/&tls=on"],
            &[
                "postgres://me:s3cret@h/db",
                "postgresql://h:5432/db?sslmode=require",
                "postgres://you@h?dbname=db&schema=tenure&password=s3cret",
                "postgres://db:s3cret@h",
                "postgres://h/?user=db",
            ],
            &["postgres:///db?host=/run&port=1", "postgres:///db?port=1&host=%2Frun"],
            &["postgres:///db?host=/run", "postgres:///d%62?%68ost=/run&port=5432"],
            &["postgres://%2Frun/db", "postgres://me:s3cret@%2Frun:5432/db"],
            &["postgres://h", "postgres://H:5432/", "postgres://:s3cret@h?dbname="],
            &["redis://[::1]", "redis://[::1]:6379"],
            &["sqlite:a.db", "sqlite:./a.db", "sqlite:../store/a.db"],
        ] {
            for url in same {
                assert_eq!(place(url), place(same[0]), "{url}");
                assert!(!place(url).contains("cret"));
            }
        }
        for (one, other) in [
            ("redis://h", "redis://h/1"),
            ("redis://h", "redis://h:6380"),
            ("redis://h", "redis://h?prefix=a:"),
            ("redis://h", "redis://g"),
            ("etcd://a:1", "etcd://a:1,b:2"),
            ("etcd://a:1", "etcd://a:1?prefix=x/"),
            ("postgres://h/a", "postgres://h/b"),
            ("postgres://h/a", "postgres://h:1/a"),
            ("postgres://h/a", "postgres://h/a?schema=b"),
            ("postgres://a@h", "postgres://b@h"),
            ("postgres:///db?host=/run&port=1", "postgres:///db?host=/run&port=2"),
            ("postgres:///db?host=/Run", "postgres:///db?host=/run"),
            ("postgres://%2FRun/db", "postgres://%2Frun/db"),
            ("postgres://h/db", "postgres://h/db/"),
            ("postgres://h", "postgres://h/h"),
            ("postgres://h", "postgres://me@h"),
            // An empty `dbname` means the user's name, whatever the path is.
            ("postgres://me@h/db?dbname=", "postgres://me@h/db"),
            ("postgres:///db?host=a&host=b", "postgres:///db?host=b"),
            ("postgres:///db?host=a,b&port=1,2", "postgres:///db?host=b,a&port=1,2"),
            ("postgres:///db?host=a&hostaddr=::1", "postgres:///db?host=a"),
            // Either host may accept writes, and the first one is tried first.
            ("postgres://a,b/db", "postgres://b,a/db"),
            ("postgres://h/a%3Fschema%3Db", "postgres://h/a?schema=b%3Fschema%3Dtenure"),
            ("postgres://h/%FF", "postgres://h/%FE"),
            ("redis://h?prefix=a%26b", "redis://h?prefix=a"),
            ("sqlite:a.db", "sqlite:b.db"),
        ] {
            assert_ne!(place(one), place(other));
        }
    }
}
