//! Connections to servers of the kinds that stores live on, for others who read there: the same
//! URLs, the same parameters for encryption, the same words for what goes wrong.

use tenure_core::{BoxFuture, StoreResult};

/// Takes the parameters of these names out of a URL, unescaped, and gives the URL without them. A
/// URL that could be read in two ways is refused, because one of them would print a password.
pub fn take_parameters<const N: usize>(
    url: &str,
    names: [&str; N],
) -> StoreResult<(String, [Option<String>; N])> {
    crate::tls::take(url, names)
}

/// A connection to Redis. It ends with its last copy.
#[cfg(feature = "redis")]
#[derive(Clone)]
pub struct RedisConnection(pub(crate) crate::redis::DrivenConnection);

#[cfg(feature = "redis")]
impl RedisConnection {
    /// For commands. It has to be dropped before this.
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

/// TLS settings for a server whose certificate must name it. `authority` is a
/// file with the authorities to trust, those of the system if there is none; `identity` the files
/// with the client's certificate and key.
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
