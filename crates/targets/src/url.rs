//! Lists of targets by URL.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use percent_encoding::percent_decode_str;
use tenure_core::{Listing, StoreError, Target, Targets};

use crate::collect::{Collector, too_many};
use crate::{FileTargets, bad};

/// Default time limit of a listing.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// The environment variable with the bearer token for `http://` and `https://`.
pub const TOKEN: &str = "TENURE_TARGETS_TOKEN";

/// URL of a list of targets as the user wrote it. It may carry a password, so it prints without
/// one, and without its query.
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
    /// Reads `redis://...?pattern=GLOB`, `redis://...?set=NAME`, `postgres://...?query=SQL`,
    /// `sqlite:PATH?query=SQL`, `http://...`, `https://...`, `file:PATH` or `list:ID,ID`.
    ///
    /// An invalid URL is [`tenure_core::Code::BadTargets`], one that this build cannot read
    /// [`tenure_core::Code::NotBuilt`]. Nothing is connected to yet.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
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
                // The rest may hold a password; the scheme cannot, unless it is not one.
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

    /// The same list with another limit on how long reading it may take.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The list, with the bearer token that [`TOKEN`] has. Nothing is connected to yet.
    pub fn open(&self) -> Arc<dyn Targets> {
        self.open_with_token(std::env::var(TOKEN).ok().filter(|token| !token.is_empty()))
    }

    /// The same with another bearer token. Only `http://` and `https://` send it.
    pub fn open_with_token(&self, token: Option<String>) -> Arc<dyn Targets> {
        let timeout = self.timeout;
        let _ = &token; // Not every build has somebody to send it to.
        match &self.source {
            #[cfg(feature = "redis")]
            TargetsSource::Redis(settings) => {
                Arc::new(crate::redis::RedisTargets::new(settings.clone(), timeout))
            }
            #[cfg(feature = "postgres")]
            TargetsSource::Postgres(settings) => {
                Arc::new(crate::postgres::PostgresTargets::new(settings.clone(), timeout))
            }
            #[cfg(feature = "sqlite")]
            TargetsSource::Sqlite(settings) => {
                Arc::new(crate::sqlite::SqliteTargets::new(settings.clone(), timeout))
            }
            #[cfg(feature = "http")]
            TargetsSource::Http(settings) => {
                Arc::new(crate::http::HttpTargets::new(settings.clone(), token, timeout))
            }
            TargetsSource::File(path) => {
                Arc::new(FileTargets::new(path.clone()).with_timeout(timeout))
            }
            TargetsSource::Static(list) => Arc::new(list.clone()),
        }
    }
}

/// `file:///PATH` is the same as `file:/PATH`.
fn file_path(rest: &str) -> Result<PathBuf, StoreError> {
    let path = if rest.starts_with("///") { &rest[2..] } else { rest };
    if path.is_empty() || path.starts_with("//") || path.contains('\0') || path.ends_with('/') {
        return Err(bad("file: needs the path of a file on this host"));
    }
    Ok(path.into())
}

#[cfg(feature = "redis")]
fn redis(text: &str) -> Result<(TargetsSource, String), StoreError> {
    let (settings, shown) = crate::redis::RedisKeys::parse(text)?;
    Ok((TargetsSource::Redis(settings), shown))
}

#[cfg(feature = "postgres")]
fn postgres(text: &str) -> Result<(TargetsSource, String), StoreError> {
    let (settings, shown) = crate::postgres::PostgresQuery::parse(text)?;
    Ok((TargetsSource::Postgres(settings), shown))
}

#[cfg(feature = "sqlite")]
fn sqlite(rest: &str) -> Result<(TargetsSource, String), StoreError> {
    let (settings, shown) = crate::sqlite::SqliteQuery::parse(rest)?;
    Ok((TargetsSource::Sqlite(settings), shown))
}

#[cfg(feature = "http")]
fn http(text: &str) -> Result<(TargetsSource, String), StoreError> {
    let (settings, shown) = crate::http::HttpSource::parse(text)?;
    Ok((TargetsSource::Http(settings), shown))
}

macro_rules! not_built {
    ($($name:ident $feature:literal)*) => {$(
        #[cfg(not(feature = $feature))]
        fn $name(_: &str) -> Result<(TargetsSource, String), StoreError> {
            let detail = concat!("a list there needs the cargo feature ", $feature);
            Err(StoreError::refused(tenure_core::Code::NotBuilt, detail))
        }
    )*};
}

not_built! {
    redis "redis"
    postgres "postgres"
    sqlite "sqlite"
    http "http"
}

/// As the user wrote it, without password, query and parameters.
impl fmt::Display for TargetsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// As it prints.
impl fmt::Debug for TargetsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TargetsUrl({self})")
    }
}

/// A list that stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticTargets {
    listing: Listing,
}

impl StaticTargets {
    /// These targets.
    pub fn new(targets: impl IntoIterator<Item = Target>) -> Self {
        Self { listing: Listing::new(targets) }
    }

    /// Ids between commas, percent-escaped where needed: a comma is `%2C`.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let mut list = Collector::new(usize::MAX);
        for word in text.split(',') {
            let id = percent_decode_str(word).decode_utf8();
            list.add(&id.map_err(|_| list.wrong("it is no UTF-8"))?, None, false)?;
        }
        Ok(Self { listing: list.finish() })
    }
}

#[async_trait]
impl Targets for StaticTargets {
    async fn list(&self, most: usize) -> Result<Listing, StoreError> {
        match self.listing.targets().len() {
            found if found > most => Err(too_many(found, most)),
            _ => Ok(self.listing.clone()),
        }
    }
}
