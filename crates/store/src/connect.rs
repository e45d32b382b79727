//! Connections to Redis and PostgreSQL for other crates, with the same URLs, TLS parameters and
//! error messages as the stores.

use tenure_core::{BoxFuture, StoreResult};

/// Splits the named parameters from a URL: returns the URL without them, and their unescaped
/// values. Refuses an ambiguous URL, because one reading of it would print a password.
pub fn take_parameters<const N: usize>(
    url: &str,
    names: [&str; N],
) -> StoreResult<(String, [Option<String>; N])> {
    crate::tls::take(url, names)
}

/// Connection to Redis. It closes when its last clone is dropped.
#[cfg(feature = "redis")]
#[derive(Clone)]
pub struct RedisConnection(pub(crate) crate::redis::DrivenConnection);

#[cfg(feature = "redis")]
impl RedisConnection {
    /// Returns a connection for commands. Drop it before this one.
    pub fn commands(&self) -> redis::aio::MultiplexedConnection {
        self.0.connection.clone()
    }
}

/// Connects by a `redis://` or `rediss://` URL.
#[cfg(feature = "redis")]
pub fn redis(url: &str) -> BoxFuture<'_, StoreResult<RedisConnection>> {
    Box::pin(async {
        Ok(RedisConnection(crate::redis::RedisConnector::new(url).await?.open().await?))
    })
}

/// Connects by a `postgres://` URL. The connection ends when the client is dropped.
#[cfg(feature = "postgres")]
pub fn postgres(url: &str) -> BoxFuture<'_, StoreResult<tokio_postgres::Client>> {
    Box::pin(crate::postgres::connect_once(url))
}

/// Builds TLS settings that require a server certificate for the server's name. `authority` is a
/// file with the authorities to trust; without it, those of the system are trusted. `identity`
/// names the files with the client's certificate and key.
#[cfg(feature = "tls")]
pub fn tls(
    authority: Option<String>,
    identity: Option<(String, String)>,
) -> BoxFuture<'static, StoreResult<rustls::ClientConfig>> {
    use crate::tls::{PemFiles, Trust, client};
    Box::pin(client(Trust::Name, PemFiles { authority, identity }))
}

#[cfg(feature = "tls")]
pub use crate::tls::pinned_client;

/// Explains a failed handshake, if the error is about TLS.
#[cfg(feature = "tls")]
pub fn explain_tls(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    crate::tls::explain(error)
}
