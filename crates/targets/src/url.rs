//! Lists of targets by URL.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use percent_encoding::percent_decode_str;
use tenure_core::{Listing, StoreError, Target, Targets};

use crate::collect::{Collector, Entry};
use crate::error::{TargetsError, bad, too_many};
use crate::{file, within};

/// Default time limit of a listing.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// The environment variable with the bearer token for `http://` and `https://`.
pub const TOKEN: &str = "TENURE_TARGETS_TOKEN";

/// URL of a list of targets as the user wrote it. It may contain a password, so its printed form
/// has no password and no query.
#[derive(Clone, PartialEq, Eq)]
pub struct TargetsUrl {
    source: TargetsSource,
    /// Printable form.
    shown: String,
    timeout: Duration,
}

#[derive(Clone, PartialEq, Eq)]
enum TargetsSource {
    #[cfg(feature = "redis")]
    Redis(crate::redis::RedisKeys),
    #[cfg(feature = "postgres")]
    Postgres(crate::postgres::PostgresQuery),
    #[cfg(feature = "sqlite")]
    Sqlite(crate::sqlite::SqliteQuery),
    #[cfg(feature = "http")]
    Http(crate::http::HttpSource),
    File(PathBuf),
    Static(StaticTargets),
}

impl TargetsUrl {
    /// Parses `redis://...?pattern=GLOB`, `redis://...?set=NAME`, `postgres://...?query=SQL`,
    /// `sqlite:PATH?query=SQL`, `http://...`, `https://...`, `file:PATH` or `list:ID,ID`.
    ///
    /// Returns [`tenure_core::Code::BadTargets`] for an invalid URL,
    /// [`tenure_core::Code::NotBuilt`] for one that this build does not support. Does not connect
    /// yet.
    pub fn parse(text: &str) -> Result<Self, TargetsError> {
        let (scheme, rest) = text.split_once(':').ok_or_else(|| bad("the URL has no scheme"))?;
        let (source, shown) = match scheme {
            "list" => (TargetsSource::Static(StaticTargets::parse(rest)?), text.to_owned()),
            "file" => {
                let path = file_path(rest)?;
                let shown = format!("file:{}", path.display());
                (TargetsSource::File(path), shown)
            }
            "redis" | "rediss" => redis(text)?,
            "postgres" | "postgresql" => postgres(text)?,
            "sqlite" => sqlite(rest)?,
            "http" | "https" => http(text)?,
            _ => {
                // The rest may hold a password; a valid scheme cannot.
                let plain = scheme.len() <= 16 && scheme.chars().all(|c| c.is_ascii_alphanumeric());
                let scheme = if plain { scheme } else { "(not shown)" };
                return Err(bad(format!(
                    "unknown scheme {scheme}; a list of targets is redis:, postgres:, sqlite:, \
                     http:, https:, file: or list:"
                )));
            }
        };
        Ok(Self { source, shown, timeout: TIMEOUT })
    }

    /// Sets the time limit of a listing.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Opens the list with the bearer token in [`TOKEN`]. Does not connect yet.
    pub fn open(&self) -> Arc<dyn Targets> {
        self.open_with_token(std::env::var(TOKEN).ok().filter(|token| !token.is_empty()))
    }

    /// Opens the list with another bearer token. Only `http://` and `https://` send it.
    pub fn open_with_token(&self, token: Option<String>) -> Arc<dyn Targets> {
        Arc::new(OpenedTargets { url: self.clone(), token })
    }
}

/// A list that is read again at each listing.
struct OpenedTargets {
    url: TargetsUrl,
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "only HTTP sends it"))]
    token: Option<String>,
}

#[async_trait]
impl Targets for OpenedTargets {
    async fn list(&self, most: usize) -> Result<Listing, StoreError> {
        let limit = self.url.timeout;
        let listing = async {
            match &self.url.source {
                #[cfg(feature = "redis")]
                TargetsSource::Redis(keys) => keys.read(most).await,
                #[cfg(feature = "postgres")]
                TargetsSource::Postgres(query) => query.read(most, limit).await,
                #[cfg(feature = "sqlite")]
                TargetsSource::Sqlite(query) => query.read(most, limit).await,
                #[cfg(feature = "http")]
                TargetsSource::Http(source) => {
                    source.read(self.token.as_deref(), most, limit).await
                }
                TargetsSource::File(path) => file::read(path, most).await,
                TargetsSource::Static(list) => list.read(most),
            }
        };
        Ok(within(limit, listing).await?)
    }
}

/// Without the token.
impl fmt::Debug for OpenedTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.url, f)
    }
}

/// Parses a path; `file:///PATH` is the same as `file:/PATH`.
fn file_path(rest: &str) -> Result<PathBuf, TargetsError> {
    let path = if rest.starts_with("///") { &rest[2..] } else { rest };
    if path.is_empty() || path.starts_with("//") || path.contains('\0') || path.ends_with('/') {
        return Err(bad("file: needs the path of a file on this host"));
    }
    Ok(path.into())
}

macro_rules! sources {
    ($($name:ident $feature:literal $variant:ident $settings:path;)*) => {$(
        #[cfg(feature = $feature)]
        fn $name(text: &str) -> Result<(TargetsSource, String), TargetsError> {
            let (settings, shown) = <$settings>::parse(text)?;
            Ok((TargetsSource::$variant(settings), shown))
        }

        #[cfg(not(feature = $feature))]
        fn $name(_: &str) -> Result<(TargetsSource, String), TargetsError> {
            let detail = concat!("this kind of list needs the cargo feature ", $feature);
            Err(TargetsError::new(tenure_core::Code::NotBuilt, detail))
        }
    )*};
}

sources! {
    redis "redis" Redis crate::redis::RedisKeys;
    postgres "postgres" Postgres crate::postgres::PostgresQuery;
    sqlite "sqlite" Sqlite crate::sqlite::SqliteQuery;
    http "http" Http crate::http::HttpSource;
}

/// The URL without password, query and parameters.
impl fmt::Display for TargetsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// The printable form.
impl fmt::Debug for TargetsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TargetsUrl({self})")
    }
}

/// A fixed list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticTargets {
    listing: Listing,
}

impl StaticTargets {
    /// Creates a list of these targets.
    pub fn new(targets: impl IntoIterator<Item = Target>) -> Self {
        Self { listing: Listing::new(targets) }
    }

    /// Parses ids separated by commas, percent-escaped where needed: a comma is `%2C`.
    pub fn parse(text: &str) -> Result<Self, TargetsError> {
        let mut list = Collector::new(usize::MAX);
        for word in text.split(',') {
            let id = percent_decode_str(word).decode_utf8();
            let id = id.map_err(|_| list.wrong("it is not UTF-8"))?;
            list.add(&Entry { id: &id, ..Entry::default() })?;
        }
        Ok(Self { listing: list.finish() })
    }

    fn read(&self, most: usize) -> Result<Listing, TargetsError> {
        match self.listing.targets().len() {
            found if found > most => Err(too_many(found, most)),
            _ => Ok(self.listing.clone()),
        }
    }
}

#[async_trait]
impl Targets for StaticTargets {
    async fn list(&self, most: usize) -> Result<Listing, StoreError> {
        Ok(self.read(most)?)
    }
}
