//! Stores by URL.

mod place;

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use tenure_core::{BoxFuture, Code, DutyKey, GroupName, Store, StoreError, StoreResult};

use crate::SHARED_GROUP;
use crate::signing::{Protection, Sealed, Signing};
use crate::tls::PemFiles;
#[cfg(all(feature = "file", feature = "sqlite"))]
pub(crate) use place::resolved;

/// URL of a store as the user wrote it. It may carry a password, so it prints without one.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    pub(crate) kind: UrlScheme,
    /// Part after the scheme and its separator, without our own parameters.
    pub(crate) rest: String,
    /// `schema`, `prefix`, or the duty of a cursor file, when given.
    pub(crate) namespace: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UrlScheme {
    File,
    Sqlite,
    Postgres,
    Redis,
    /// Redis, encrypted.
    Rediss,
    Etcd,
}

/// Action when no store exists yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfAbsent {
    /// Create it.
    Create,
    /// Fail with [`Code::Absent`]: for commands that only read.
    Refuse,
}

/// Default schema in PostgreSQL.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
const DEFAULT_SCHEMA: &str = "tenure";

fn bad(detail: impl Into<String>) -> StoreError {
    StoreError::refused(Code::BadUrl, detail)
}

impl StoreUrl {
    /// Whether foreign members may share and change this group's keys.
    pub fn is_shared(&self, group: &GroupName) -> bool {
        matches!(self.kind, UrlScheme::Redis | UrlScheme::Rediss) && group.as_str() == SHARED_GROUP
    }

    /// Whether only processes of this host can use the store.
    pub fn is_local(&self) -> bool {
        matches!(self.kind, UrlScheme::File | UrlScheme::Sqlite)
    }

    /// Returns the path of a store that is in files.
    pub fn local_path(&self) -> StoreResult<PathBuf> {
        match self.is_local() {
            true => Ok(self.rest.clone().into()),
            false => Err(bad("this store is on a server")),
        }
    }

    /// Returns the URL of a store of the same kind at another path.
    #[cfg(all(feature = "file", feature = "sqlite"))]
    pub(crate) fn at(&self, path: &std::path::Path) -> StoreResult<Self> {
        let rest = path.to_str().ok_or_else(|| bad("the path is not UTF-8"))?.to_owned();
        Ok(Self { rest, ..self.clone() })
    }

    /// Returns the path of the cursor, if this is a cursor file.
    pub fn cursor_path(&self) -> Option<PathBuf> {
        (self.kind == UrlScheme::File).then(|| self.rest.clone().into())
    }

    /// Reads `file:PATH[#GROUP/DUTY]`, `sqlite:PATH`, `postgres://...[?schema=NAME]`,
    /// `redis://...[?prefix=TEXT]`, `rediss://...` or `etcd://...[?prefix=TEXT]`.
    pub fn parse(text: &str) -> StoreResult<Self> {
        let (scheme, rest) = text.split_once(':').ok_or_else(|| bad("it has no scheme"))?;
        let known = match scheme {
            "file" => return Self::file(rest),
            "sqlite" => return Self::sqlite(rest),
            "postgres" | "postgresql" => Some((UrlScheme::Postgres, "schema")),
            "redis" => Some((UrlScheme::Redis, "prefix")),
            "rediss" => Some((UrlScheme::Rediss, "prefix")),
            "etcd" => Some((UrlScheme::Etcd, "prefix")),
            _ => None,
        };
        let Some((kind, own)) = known else {
            // The rest may contain a password, and so may a scheme that does not look like one.
            let plain = scheme.len() <= 16 && scheme.chars().all(|c| c.is_ascii_alphanumeric());
            let scheme = if plain { scheme } else { "(not shown)" };
            return Err(bad(format!("unknown scheme {scheme}")));
        };
        let rest = rest
            .strip_prefix("//")
            .ok_or_else(|| bad(format!("{scheme}: must be followed by //")))?;
        let (credentials, place, query) = parts(rest)?;
        let mut namespace = None;
        let mut passed_on = Vec::new();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some((name, value)) if name == own => namespace = Some(namespace_text(value)?),
                _ => passed_on.push(parameter),
            }
        }
        let is_path = |parameter: &&str| {
            matches!(parameter.split_once('='), Some(("cacert" | "cert" | "key", _)))
        };
        match kind {
            UrlScheme::Redis if !passed_on.is_empty() => {
                return Err(bad("redis:// accepts only the parameter prefix"));
            }
            UrlScheme::Rediss if !passed_on.iter().all(is_path) => {
                return Err(bad("rediss:// accepts only prefix, cacert, cert and key"));
            }
            _ => {}
        }
        if kind == UrlScheme::Etcd {
            etcd_parts(credentials, place, &passed_on)?;
        }
        let credentials = credentials.map_or(String::new(), |text| format!("{text}@"));
        let rest = match passed_on.is_empty() {
            true => format!("{credentials}{place}"),
            false => format!("{credentials}{place}?{}", passed_on.join("&")),
        };
        Ok(Self { kind, rest, namespace })
    }

    /// The text after the last `#` is a duty; `file:///PATH` is the same as `file:/PATH`.
    fn file(rest: &str) -> StoreResult<Self> {
        let (path, duty) = match rest.rsplit_once('#') {
            Some((path, duty)) => (path, Some(duty)),
            None => (rest, None),
        };
        let path = if path.starts_with("///") { &path[2..] } else { path };
        let is_file = !path.is_empty() && !path.contains('\0') && !path.ends_with('/');
        if !is_file || path.starts_with("//") {
            return Err(bad("file: needs the path of a file on this host"));
        }
        let duty = duty.map(str::parse::<DutyKey>).transpose();
        let duty =
            duty.map_err(|_| bad("the part after # in file:PATH#GROUP/DUTY is not a duty"))?;
        let namespace = duty.map(|duty| duty.to_string());
        Ok(Self { kind: UrlScheme::File, rest: path.to_owned(), namespace })
    }

    fn sqlite(path: &str) -> StoreResult<Self> {
        if path.is_empty() || path.contains('\0') || path.starts_with(':') {
            return Err(bad("sqlite: needs the path of a file"));
        }
        Ok(Self { kind: UrlScheme::Sqlite, rest: path.to_owned(), namespace: None })
    }

    /// Opens the store and brings its schema up to date. Checkpoints are not signed.
    ///
    /// `entropy` is 128 random bits from the caller, which distinguish a new store from an earlier
    /// one at the same place.
    pub async fn open(&self, if_absent: IfAbsent, entropy: u128) -> StoreResult<Arc<dyn Store>> {
        self.open_signed(if_absent, entropy, Signing::Off).await
    }

    /// Like [`Self::open`], with signed or encrypted checkpoints.
    pub async fn open_signed(
        &self,
        if_absent: IfAbsent,
        entropy: u128,
        protection: impl Into<Protection>,
    ) -> StoreResult<Arc<dyn Store>> {
        let protection = protection.into();
        let bare = self.open_bare(if_absent, entropy).await?;
        Ok(Arc::new(Sealed::new(bare, protection)))
    }

    /// Like [`Self::open`], for tools that read seals themselves: documents are returned as stored.
    pub fn open_bare(
        &self,
        if_absent: IfAbsent,
        entropy: u128,
    ) -> BoxFuture<'_, StoreResult<Arc<dyn Store>>> {
        Box::pin(self.backend(if_absent, entropy))
    }

    async fn backend(&self, if_absent: IfAbsent, entropy: u128) -> StoreResult<Arc<dyn Store>> {
        let _ = (if_absent, entropy); // Not every backend needs them, and not every one is built.
        match self.kind {
            #[cfg(feature = "file")]
            UrlScheme::File => {
                let duty = self.namespace.as_deref().map(str::parse).transpose()?;
                let path = self.rest.clone().into();
                let settings = crate::file::FileSettings {
                    path,
                    duty,
                    if_absent,
                    entropy,
                    ..Default::default()
                };
                Ok(Arc::new(crate::file::FileStore::open(settings).await?))
            }
            #[cfg(feature = "sqlite")]
            UrlScheme::Sqlite => {
                let path = self.rest.clone().into();
                let settings =
                    crate::sqlite::SqliteSettings { path, if_absent, ..Default::default() };
                Ok(Arc::new(crate::sqlite::Sqlite::open(settings).await?))
            }
            #[cfg(feature = "postgres")]
            UrlScheme::Postgres => {
                Ok(Arc::new(crate::postgres::Postgres::open(self.postgres(if_absent)).await?))
            }
            #[cfg(feature = "redis")]
            UrlScheme::Redis | UrlScheme::Rediss => {
                let prefix = self.namespace.clone().unwrap_or_default();
                let scheme = if self.kind == UrlScheme::Redis { "redis" } else { "rediss" };
                let url = format!("{scheme}://{}", self.rest);
                let settings = crate::redis::RedisSettings { url, prefix, entropy, if_absent };
                Ok(Arc::new(crate::redis::Redis::open(settings).await?))
            }
            #[cfg(feature = "etcd")]
            UrlScheme::Etcd => {
                let settings = self.etcd(if_absent, entropy)?;
                Ok(Arc::new(crate::etcd::Etcd::open(settings).await?))
            }
            #[allow(unreachable_patterns, reason = "not every build has every store")]
            other => Err(not_built(other)),
        }
    }

    /// Returns the database for tables of other crates; not every kind of store has one.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub fn tables(&self) -> StoreResult<crate::sql::Database> {
        use crate::sql::Database;
        match self.kind {
            UrlScheme::Sqlite => Ok(Database::Sqlite(self.rest.clone().into())),
            UrlScheme::Postgres => Ok(Database::Postgres {
                url: format!("postgres://{}", self.rest),
                schema: self.namespace.clone().unwrap_or_else(|| DEFAULT_SCHEMA.to_owned()),
            }),
            _ => Err(bad("this store has no tables: use sqlite:PATH or postgres://HOST/NAME")),
        }
    }

    /// Returns the statements that create or update the schema, for an administrator to run.
    pub fn migration_script(&self) -> StoreResult<String> {
        match self.kind {
            #[cfg(feature = "file")]
            UrlScheme::File => Ok("# A cursor file has no schema: nothing to run.\n".to_owned()),
            #[cfg(feature = "sqlite")]
            UrlScheme::Sqlite => Ok(crate::sqlite::script()),
            #[cfg(feature = "postgres")]
            UrlScheme::Postgres => crate::postgres::script(&self.postgres(IfAbsent::Create)),
            #[cfg(feature = "redis")]
            UrlScheme::Redis | UrlScheme::Rediss => {
                Ok("# Redis has no schema: nothing to run.\n".to_owned())
            }
            #[cfg(feature = "etcd")]
            UrlScheme::Etcd => Ok("# etcd has no schema: nothing to run.\n".to_owned()),
            #[allow(unreachable_patterns, reason = "not every build has every store")]
            other => Err(not_built(other)),
        }
    }

    #[cfg(feature = "etcd")]
    fn etcd(&self, if_absent: IfAbsent, entropy: u128) -> StoreResult<crate::etcd::EtcdSettings> {
        let (credentials, place, query) = parts(&self.rest)?;
        let passed_on: Vec<&str> = query.split('&').filter(|part| !part.is_empty()).collect();
        let EtcdParts { hosts, user, tls } = etcd_parts(credentials, place, &passed_on)?;
        let prefix = self.namespace.clone().unwrap_or_else(|| "tenure/".to_owned());
        Ok(crate::etcd::EtcdSettings { hosts, user, prefix, tls, entropy, if_absent })
    }

    #[cfg(feature = "postgres")]
    fn postgres(&self, if_absent: IfAbsent) -> crate::postgres::PostgresSettings {
        let schema = self.namespace.clone().unwrap_or_else(|| DEFAULT_SCHEMA.to_owned());
        crate::postgres::PostgresSettings {
            url: format!("postgres://{}", self.rest),
            schema,
            if_absent,
        }
    }
}

/// Parts of an `etcd://` URL.
#[cfg_attr(not(feature = "etcd"), allow(dead_code, reason = "it is checked, and then not built"))]
struct EtcdParts {
    hosts: Vec<String>,
    user: Option<(String, String)>,
    tls: Option<PemFiles>,
}

/// Reads `[USER:PASSWORD@]HOST:PORT[,HOST:PORT...]` and the parameters other than `prefix`.
fn etcd_parts(
    credentials: Option<&str>,
    place: &str,
    parameters: &[&str],
) -> StoreResult<EtcdParts> {
    let mut hosts = Vec::new();
    for host in place.trim_end_matches('/').split(',') {
        let port = host.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        if port.is_none() || host.starts_with(':') || host.contains(['/', ' ']) {
            return Err(bad("etcd:// needs HOST:PORT, or several separated by commas"));
        }
        hosts.push(host.to_owned());
    }
    let mut user = None;
    if let Some(credentials) = credentials {
        let (name, password) = credentials
            .split_once(':')
            .ok_or_else(|| bad("an etcd user needs a password (USER:PASSWORD)"))?;
        user = Some((unescape(name, "the user")?, unescape(password, "the password")?));
    }
    let (mut wanted, [mut authority, mut certificate, mut key]) = (None, [const { None }; 3]);
    for parameter in parameters {
        match parameter.split_once('=') {
            Some(("tls", "on")) => wanted = Some(true),
            Some(("tls", "off")) => wanted = Some(false),
            Some(("cacert", path)) => authority = Some(unescape(path, "cacert")?),
            Some(("cert", path)) => certificate = Some(unescape(path, "cert")?),
            Some(("key", path)) => key = Some(unescape(path, "key")?),
            _ => return Err(bad("etcd:// accepts only prefix, tls=on|off, cacert, cert and key")),
        }
    }
    let files = PemFiles::new(authority, certificate, key, "cert and key")?;
    let named = files != PemFiles::default();
    if named && wanted == Some(false) {
        return Err(bad("tls=off cannot be combined with cacert, cert or key"));
    }
    Ok(EtcdParts { hosts, user, tls: wanted.unwrap_or(named).then_some(files) })
}

#[allow(dead_code, reason = "not every build lacks a store")]
fn not_built(kind: UrlScheme) -> StoreError {
    let kind = if kind == UrlScheme::Rediss { UrlScheme::Redis } else { kind };
    let feature = format!("{kind:?}").to_lowercase();
    StoreError::refused(Code::NotBuilt, format!("cargo feature {feature}"))
}

/// Splits `[user[:password]@]host[/path][?parameters]` into credentials, place (host and path) and
/// parameters. Refuses an ambiguous URL, because one reading of it would print a password: `@`, `/`
/// and `?` inside a part must be percent-escaped.
pub(crate) fn parts(rest: &str) -> StoreResult<(Option<&str>, &str, &str)> {
    let escape = || bad("write @ as %40, / as %2F and ? as %3F inside a user, password or prefix");
    let (credentials, after) = match rest.split_once('@') {
        Some((credentials, after)) => (Some(credentials), after),
        None => (None, rest),
    };
    if credentials.is_some_and(|credentials| credentials.contains(['/', '?'])) {
        return Err(escape());
    }
    let (place, query) = after.split_once('?').unwrap_or((after, ""));
    let host = place.split('/').next().unwrap_or_default();
    if host.contains('@') {
        return Err(escape());
    }
    Ok((credentials, place, query))
}

/// Unescapes a part of a URL; `what` names the part in the error.
pub(crate) fn unescape(part: &str, what: &str) -> StoreResult<String> {
    let text = percent_encoding::percent_decode_str(part).decode_utf8();
    text.map(Cow::into_owned).map_err(|_| bad(format!("{what} is not UTF-8")))
}

fn namespace_text(escaped: &str) -> StoreResult<String> {
    let text = unescape(escaped, "schema or prefix")?;
    if text.is_empty() || text.len() > 63 || text.chars().any(char::is_control) {
        return Err(bad("schema or prefix must have 1 to 63 bytes and no control characters"));
    }
    Ok(text)
}

/// Omits the password, and the driver's parameters, which may contain one.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, own) = match self.kind {
            UrlScheme::File => {
                write!(f, "file:{}", self.rest)?;
                return self.namespace.iter().try_for_each(|duty| write!(f, "#{duty}"));
            }
            UrlScheme::Sqlite => return write!(f, "sqlite:{}", self.rest),
            UrlScheme::Postgres => ("postgres", "schema"),
            UrlScheme::Redis => ("redis", "prefix"),
            UrlScheme::Rediss => ("rediss", "prefix"),
            UrlScheme::Etcd => ("etcd", "prefix"),
        };
        // `parse` has split this text before; if it cannot be split again, it is not shown.
        let (credentials, place, _) = parts(&self.rest).unwrap_or((None, "(not shown)", ""));
        let user = credentials.and_then(|text| text.split(':').next());
        let place = user.map_or(place.to_owned(), |user| format!("{user}@{place}"));
        write!(f, "{scheme}://{place}")?;
        match &self.namespace {
            Some(namespace) => write!(f, "?{own}={namespace}"),
            None => Ok(()),
        }
    }
}

/// The same text as `Display`.
impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> String {
        StoreUrl::parse(url).unwrap().to_string()
    }

    #[test]
    fn a_url_prints_without_its_secrets() {
        for (url, expected) in [
            ("sqlite:tenure.db", "sqlite:tenure.db"),
            ("file:cursor.json", "file:cursor.json"),
            ("file:///d/a#b.json#gmail/a%2Fb", "file:/d/a#b.json#gmail/a%2Fb"),
            ("postgres://me:s3cret@h/db?schema=lease", "postgres://me@h/db?schema=lease"),
            ("postgres://me:s3cret@h1:1,h2:2/db", "postgres://me@h1:1,h2:2/db"),
            ("postgres://me@h/db?password=s3@cret", "postgres://me@h/db"),
            ("redis://:s3%3Fcret@h/0", "redis://@h/0"),
            ("postgresql://h/db?password=s3cret&user=me", "postgres://h/db"),
            ("redis://:s3cret@h:6379/0?prefix=app:", "redis://@h:6379/0?prefix=app:"),
            // Paths are no secrets, but as parameters they are left out with the rest.
            ("rediss://me:s3cret@h/0?cacert=/ca.pem&prefix=a", "rediss://me@h/0?prefix=a"),
            ("rediss://h?cert=/c.pem&key=%2Fs3cret.key", "rediss://h"),
            ("postgres://me:s3cret@h/db?sslmode=require&sslkey=/k", "postgres://me@h/db"),
            ("etcd://me:s3cret@a:1,b:2?tls=on&prefix=x/", "etcd://me@a:1,b:2?prefix=x/"),
        ] {
            assert_eq!(shown(url), expected);
            assert!(!format!("{:?}", StoreUrl::parse(url).unwrap()).contains("cret"));
        }
    }

    #[test]
    fn our_own_parameters_do_not_reach_the_driver() {
        let url =
            StoreUrl::parse("postgres://h/db?connect_timeout=3&schema=a%20b&user=me").unwrap();
        assert_eq!(url.rest, "h/db?connect_timeout=3&user=me");
        assert_eq!(url.namespace.as_deref(), Some("a b"));
    }

    #[test]
    fn what_is_no_store_url_is_refused_without_being_shown() {
        for (url, code) in [
            ("", Code::BadUrl),
            ("tenure.db", Code::BadUrl),
            ("sqlite:", Code::BadUrl),
            ("file:", Code::BadUrl),
            ("file:#g/d", Code::BadUrl),
            ("file:folder/", Code::BadUrl),
            ("file:cursor.json#gmail", Code::BadUrl),
            ("file://host/cursor.json", Code::BadUrl),
            ("sqlite::memory:", Code::BadUrl),
            ("mysql://me:s3cret@h/db", Code::BadUrl),
            ("me:s3cret@h", Code::BadUrl),
            ("me%40x,s3cret:h", Code::BadUrl),
            ("postgres:h", Code::BadUrl),
            // Each of these is ambiguous.
            ("postgres://me:s3cret?x@h/db", Code::BadUrl),
            ("postgres://me:s3cret/x@h/db", Code::BadUrl),
            ("postgres://me:s3@s3cret@h/db", Code::BadUrl),
            ("postgres://h/db?password=x@s3cret", Code::BadUrl),
            ("redis://h:6379/0?prefix=s3cret@app:", Code::BadUrl),
            ("redis://h:6379/0?protocol=s3cret", Code::BadUrl),
            ("postgres://h/db?schema=", Code::BadUrl),
            ("redis://h?prefix=%FF", Code::BadUrl),
            ("rediss://h:6379/0?sslmode=s3cret", Code::BadUrl),
            ("redis://h:6379/0?cacert=s3cret", Code::BadUrl),
            ("etcd://me:s3cret@h", Code::BadUrl),
            ("etcd://s3cret@h:1", Code::BadUrl),
            ("etcd://h:1/s3cret", Code::BadUrl),
            ("etcd://h:1,", Code::BadUrl),
            ("etcd://h:1?tls=maybe", Code::BadUrl),
            ("etcd://h:1?token=s3cret", Code::BadUrl),
            ("etcd://h:1?cert=s3cret", Code::BadUrl),
            ("etcd://h:1?tls=off&cacert=s3cret", Code::BadUrl),
        ] {
            let error = StoreUrl::parse(url).unwrap_err();
            assert_eq!(error.code(), code, "{url}");
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn the_parts_of_an_etcd_url_are_unescaped() {
        let parts = etcd_parts(Some("me:p%40ss"), "a:1,[::1]:2", &["cacert=/x%20y"]).unwrap();
        assert_eq!(parts.hosts, ["a:1", "[::1]:2"]);
        assert_eq!(parts.user, Some(("me".to_owned(), "p@ss".to_owned())));
        assert_eq!(parts.tls.unwrap().authority.as_deref(), Some("/x y"));
        assert!(etcd_parts(None, "a:1", &[]).unwrap().tls.is_none());
    }

    #[cfg(not(feature = "etcd"))]
    #[tokio::test]
    async fn a_build_without_etcd_names_the_feature() {
        let url = StoreUrl::parse("etcd://h:1").unwrap();
        let error = url.open(IfAbsent::Create, 1).await.unwrap_err();
        assert_eq!(error.code(), Code::NotBuilt);
        assert!(error.to_string().contains("cargo feature etcd"), "{error}");
    }
}
