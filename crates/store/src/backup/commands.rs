//! Commands that back up and restore a server with its own tools.

use percent_encoding::percent_decode_str;
use tenure_core::StoreResult;

use crate::StoreUrl;
use crate::url::{UrlScheme, parts};

/// Connection parameters of PostgreSQL that are no secrets, and mean the same to its own tools.
const LIBPQ_PARAMETERS: [&str; 9] =
    ["user", "host", "hostaddr", "port", "dbname", "sslmode", "sslrootcert", "sslcert", "sslkey"];

/// Further parameters of PostgreSQL that Tenure accepts, and that are no secrets.
const DRIVER_PARAMETERS: [&str; 11] = [
    "options",
    "application_name",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "target_session_attrs",
    "channel_binding",
    "load_balance_hosts",
];

impl StoreUrl {
    /// Returns the commands that back up this store and restore it, for a shell; `None` if
    /// [`Self::back_up`] does that. They contain no password.
    pub fn backup_commands(&self) -> StoreResult<Option<String>> {
        if self.is_local() {
            return Ok(None);
        }
        let (credentials, place, query) = parts(&self.rest)?;
        let user = credentials.and_then(|text| text.split(':').next()).unwrap_or_default();
        let commands = match self.kind {
            UrlScheme::Postgres => self.for_postgres(user, place, query),
            UrlScheme::Etcd => for_etcd(user, place, query),
            _ => self.for_redis(user, place, query),
        };
        let has_password = credentials.is_some_and(|text| text.contains(':'))
            || query.split('&').any(|parameter| parameter.starts_with("password="));
        let secret = if has_password { " Put the password into the URL again." } else { "" };
        let url = quoted(&self.without_secrets(query));
        Ok(Some(format!(
            "{commands}\
             # Adopt the store before any process uses it.{secret}\n\
             tenure store adopt --yes --store {url}\n"
        )))
    }

    /// Returns the URL with all parameters, except those that may be secret.
    fn without_secrets(&self, query: &str) -> String {
        let known = [&LIBPQ_PARAMETERS[..], &DRIVER_PARAMETERS].concat();
        // Other stores refuse further parameters, and have no secret ones.
        let is_plain = |name: &str| self.kind != UrlScheme::Postgres || known.contains(&name);
        with_parameters(self.to_string(), query, is_plain)
    }

    fn for_postgres(&self, user: &str, place: &str, query: &str) -> String {
        let user = if user.is_empty() { String::new() } else { format!("{user}@") };
        let url = format!("postgres://{user}{place}");
        let url = quoted(&with_parameters(url, query, |name| LIBPQ_PARAMETERS.contains(&name)));
        let schema = self.namespace.as_deref().unwrap_or("tenure");
        format!(
            "# Back up, while processes go on. The tools read the password from PGPASSWORD.\n\
             pg_dump --dbname={url} --schema={schema} --format=custom --file=tenure.dump\n\
             # Restore, while no process uses the store. On the same server, the schema before\n\
             # stays under another name; on a new one, leave this line out.\n\
             psql --dbname={url} --command='ALTER SCHEMA {schema} RENAME TO {schema}_before'\n\
             pg_restore --dbname={url} --exit-on-error --single-transaction tenure.dump\n"
        )
    }

    fn for_redis(&self, user: &str, place: &str, query: &str) -> String {
        let address = place.split('/').next().unwrap_or_default();
        let (host, port) = match address.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port),
            _ => (address, "6379"),
        };
        let host = quoted(host.trim_matches(['[', ']']));
        let mut cli = format!("redis-cli -h {host} -p {port}");
        if !user.is_empty() {
            cli += &format!(" --user {}", quoted(&plain(user)));
        }
        if self.kind == UrlScheme::Rediss {
            cli += &format!(" --tls{}", certificate_files(query));
        }
        format!(
            "# Back up, while processes go on: a snapshot of all databases of the server.\n\
             # redis-cli reads the password from REDISCLI_AUTH.\n\
             {cli} --rdb tenure.rdb\n\
             # Restore, while no process uses the store: stop the server, move the files in its\n\
             # folder (dump.rdb, appendonlydir) away, copy tenure.rdb to dump.rdb there, start\n\
             # the server with `--appendonly no`, and then turn the append-only file on again.\n\
             {cli} CONFIG SET appendonly yes\n"
        )
    }
}

/// Adds the wanted parameters of a query to a URL.
fn with_parameters(url: String, query: &str, is_wanted: impl Fn(&str) -> bool) -> String {
    let wanted = |part: &&str| part.split_once('=').is_some_and(|(name, _)| is_wanted(name));
    query.split('&').filter(wanted).fold(url, |url, parameter| {
        let separator = if url.contains('?') { '&' } else { '?' };
        format!("{url}{separator}{parameter}")
    })
}

fn for_etcd(user: &str, place: &str, query: &str) -> String {
    // A snapshot is of one member.
    let member = place.trim_end_matches('/').split(',').next().unwrap_or_default();
    let files = certificate_files(query);
    let encrypted = !files.is_empty() || query.split('&').any(|part| part == "tls=on");
    let scheme = if encrypted { "https" } else { "http" };
    let mut ctl = format!("etcdctl --endpoints={}", quoted(&format!("{scheme}://{member}")));
    if !user.is_empty() {
        ctl += &format!(" --user={}", quoted(&plain(user)));
    }
    format!(
        "# Back up, while processes go on: a snapshot of the whole cluster. etcdctl reads the\n\
         # password from ETCDCTL_PASSWORD, or asks for it.\n\
         {ctl}{files} snapshot save tenure.snap\n\
         # Restore, while no process uses the store: stop all members, make the data folder of\n\
         # each anew (with etcdutl from etcd 3.5 on), and start them with it. Several members:\n\
         # see etcd's page on disaster recovery.\n\
         etcdctl snapshot restore tenure.snap --data-dir=etcd.restored\n"
    )
}

/// Returns the options for certificate files, which redis-cli and etcdctl call the same.
fn certificate_files(query: &str) -> String {
    let named = query.split('&').filter_map(|parameter| parameter.split_once('='));
    let files = named.filter(|(name, _)| ["cacert", "cert", "key"].contains(name));
    files.map(|(name, path)| format!(" --{name} {}", quoted(&plain(path)))).collect()
}

fn plain(escaped: &str) -> String {
    percent_decode_str(escaped).decode_utf8_lossy().into_owned()
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_name_the_place_and_no_password() {
        for (url, expected) in [
            (
                "postgres://me:s3cret@h:1/db?schema=lease&sslmode=require&password=s3cret&x=s3cret",
                &[
                    "pg_dump --dbname='postgres://me@h:1/db?sslmode=require' --schema=lease ",
                    "ALTER SCHEMA lease RENAME TO lease_before",
                    "adopt --yes --store 'postgres://me@h:1/db?schema=lease&sslmode=require'",
                    "Put the password into the URL again",
                ][..],
            ),
            ("postgres:///db?host=/run", &["--dbname='postgres:///db?host=/run' --schema=tenure"]),
            (
                "postgres:///db?host=/run&connect_timeout=3&password=s3cret",
                &[
                    "pg_dump --dbname='postgres:///db?host=/run' ",
                    "adopt --yes --store 'postgres:///db?host=/run&connect_timeout=3'",
                    "Put the password into the URL again",
                ],
            ),
            ("redis://h", &["redis-cli -h 'h' -p 6379 --rdb", "--store 'redis://h'"]),
            (
                "rediss://m%20e:s3cret@[::1]:1/2?cacert=/a%20b&prefix=it's",
                &[
                    "redis-cli -h '::1' -p 1 --user 'm e' --tls --cacert '/a b' --rdb tenure.rdb",
                    "--store 'rediss://m%20e@[::1]:1/2?prefix=it'\\''s&cacert=/a%20b'",
                ],
            ),
            ("etcd://a:1,b:2", &["etcdctl --endpoints='http://a:1' snapshot save tenure.snap"]),
            (
                "etcd://me:s3cret@a:1?cacert=/ca",
                &[
                    "--endpoints='https://a:1' --user='me' --cacert '/ca' snapshot save",
                    "--store 'etcd://me@a:1?cacert=/ca'",
                ],
            ),
        ] {
            let text = StoreUrl::parse(url).unwrap().backup_commands().unwrap().unwrap();
            assert!(!text.contains("cret"), "{text}");
            for part in expected {
                assert!(text.contains(part), "{part}\n{text}");
            }
        }
        let local = StoreUrl::parse("sqlite:a.db").unwrap();
        assert_eq!(local.backup_commands().unwrap(), None);
    }
}
