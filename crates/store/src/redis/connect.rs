//! Connections, plain or encrypted.
//!
//! The driver's own TLS would use the process-wide crypto provider (and panic without one), read
//! the system's certificate authorities at each connection, and report every failed handshake only
//! as a failed connection. So the driver gets a TLS stream that is already open.

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, IntoConnectionInfo, ProtocolVersion,
};
use tenure_core::{Code, StoreError, StoreResult};

use super::client::{COMMAND_TIMEOUT, CONNECT_TIMEOUT};
use super::error;

/// Address of the server, and how to connect to it.
pub(crate) struct RedisConnector {
    client: Client,
    address: String,
    #[cfg(feature = "tls")]
    tls: Option<tls::RedisTls>,
}

/// A connection. Its driver task ends when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct DrivenConnection {
    pub(crate) connection: MultiplexedConnection,
    #[cfg(feature = "tls")]
    _driver: Option<std::sync::Arc<tls::ConnectionDriver>>,
}

fn bad(what: &str) -> StoreError {
    StoreError::refused(Code::BadUrl, what)
}

/// Parses a URL with the driver's parser and refuses what this backend does not support.
fn client(url: &str) -> StoreResult<(Client, String)> {
    if !url.starts_with("redis:") {
        return Err(bad("the scheme is neither redis nor rediss"));
    }
    // The driver interprets some words after `#`, and truncates a password that contains one.
    if url.contains('#') {
        return Err(bad("the URL contains #; write it as %23"));
    }
    let unreadable = |_| bad("the URL is not redis://[user:password@]host:port/number");
    let info = url.into_connection_info().map_err(unreadable)?;
    let ConnectionAddr::Tcp(host, port) = info.addr() else {
        return Err(bad("the URL needs a host and a port"));
    };
    let address = format!("{host}:{port}/{}", info.redis_settings().db());
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP2);
    let client = Client::open(info.set_redis_settings(settings));
    Ok((client.map_err(unreadable)?, address))
}

impl RedisConnector {
    /// Reads the URL and the files that it names.
    pub(crate) async fn new(url: &str) -> StoreResult<Self> {
        let Some(rest) = url.strip_prefix("rediss:") else {
            let (client, address) = client(url)?;
            return Ok(Self {
                client,
                address,
                #[cfg(feature = "tls")]
                tls: None,
            });
        };
        Self::encrypted(&format!("redis:{rest}")).await
    }

    #[cfg(not(feature = "tls"))]
    async fn encrypted(_url: &str) -> StoreResult<Self> {
        Err(crate::tls::not_built("rediss://"))
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn is_encrypted(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }

    fn config() -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(COMMAND_TIMEOUT))
    }

    pub(crate) async fn open(&self) -> StoreResult<DrivenConnection> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return tls.open(self).await;
        }
        let config = Self::config();
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
        let connection = connecting.await.map_err(|error| self.refused(&error))?;
        Ok(DrivenConnection {
            connection,
            #[cfg(feature = "tls")]
            _driver: None,
        })
    }

    /// Opens a connection for subscriptions.
    pub(super) async fn pubsub(&self) -> StoreResult<PubSub> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return tls.pubsub(self).await;
        }
        self.client.get_async_pubsub().await.map_err(|error| self.refused(&error))
    }

    /// Error for a server that did not accept a connection in time.
    pub(super) fn late(&self) -> StoreError {
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            // A server without TLS may still be waiting for the rest of a command.
            let address = &self.address;
            let detail =
                format!("no TLS connection to {address} in time; does this port speak TLS?");
            return StoreError::refused(Code::Unreachable, detail);
        }
        error::unreachable(&self.address)
    }

    fn refused(&self, error: &redis::RedisError) -> StoreError {
        let closed = error.is_connection_dropped() && !error.is_connection_refusal();
        // The server accepted the connection, but does not speak the expected protocol.
        let problem = match error.kind() {
            _ if closed => "closed the connection",
            ErrorKind::Parse => "does not speak the Redis protocol",
            _ => return error::connect_error(error, &self.address),
        };
        let detail = format!("{} {problem}; if it requires TLS, use rediss://", self.address);
        StoreError::refused(Code::Unreachable, detail)
    }
}

#[cfg(feature = "tls")]
mod tls {
    use std::io;
    use std::sync::Arc;

    use rustls::pki_types::ServerName;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::task::AbortHandle;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::client::TlsStream;

    use super::*;
    use crate::tls::{PemFiles, Trust, explain, failed, take};

    /// Longer than any first line that a server sends.
    const MAX_FIRST_LINE_BYTES: usize = 1024;

    pub(super) struct RedisTls {
        connector: TlsConnector,
        host: String,
        port: u16,
    }

    /// Task that drives a connection. Aborted with its last owner, like the driver's own tasks: a
    /// server that never answers would keep it alive forever.
    pub(super) struct ConnectionDriver(AbortHandle);

    impl Drop for ConnectionDriver {
        fn drop(&mut self) {
            self.0.abort();
        }
    }

    impl RedisConnector {
        pub(super) async fn encrypted(url: &str) -> StoreResult<Self> {
            let (url, [authority, certificate, key]) = take(url, ["cacert", "cert", "key"])?;
            let files = PemFiles::new(authority, certificate, key, "cert and key")?;
            let (client, address) = client(&url)?;
            let ConnectionAddr::Tcp(host, port) = client.get_connection_info().addr().clone()
            else {
                return Err(bad("the URL needs a host and a port"));
            };
            let config = crate::tls::client(Trust::Name, files).await?;
            let connector = TlsConnector::from(Arc::new(config));
            Ok(Self { client, address, tls: Some(RedisTls { connector, host, port }) })
        }
    }

    impl RedisTls {
        pub(super) async fn open(
            &self,
            connector: &RedisConnector,
        ) -> StoreResult<DrivenConnection> {
            let stream = self.stream(connector).await?;
            let settings = connector.client.get_connection_info().redis_settings();
            let made =
                MultiplexedConnection::new_with_config(settings, stream, RedisConnector::config());
            let refused = |error| error::connect_error(&error, &connector.address);
            let (connection, driver) = made.await.map_err(refused)?;
            let driver = ConnectionDriver(tokio::spawn(driver).abort_handle());
            Ok(DrivenConnection { connection, _driver: Some(Arc::new(driver)) })
        }

        pub(super) async fn pubsub(&self, connector: &RedisConnector) -> StoreResult<PubSub> {
            let stream = self.stream(connector).await?;
            let settings = connector.client.get_connection_info().redis_settings();
            let made = PubSub::new(settings, stream).await;
            made.map_err(|error| error::connect_error(&error, &connector.address))
        }

        async fn stream(&self, connector: &RedisConnector) -> StoreResult<TlsStream<TcpStream>> {
            let unreachable = |_| error::unreachable(&connector.address);
            let socket = TcpStream::connect((self.host.as_str(), self.port)).await;
            let socket = socket.map_err(unreachable)?;
            socket.set_nodelay(true).map_err(unreachable)?;
            let unnamed = |_| failed(format!("{} is not a valid TLS server name", self.host));
            let name = ServerName::try_from(self.host.clone()).map_err(unnamed)?;
            let why = |error: io::Error| {
                let why = explain(&error);
                let why = why.unwrap_or_else(|| "the server ended the handshake".to_owned());
                failed(format!("{}: {why}", connector.address))
            };
            let mut stream = self.connector.connect(name, socket).await.map_err(why)?;
            match first_answer(&mut stream).await.map_err(why)? {
                // The server has no free connection or denies access; it closes the connection
                // next.
                line if line.starts_with("-ERR") || line.starts_with("-DENIED") => {
                    Err(StoreError::refused(Code::Failed, line.trim_start_matches('-')))
                }
                _ => Ok(stream),
            }
        }
    }

    /// Sends `PING` and returns the first line of the answer. A TLS 1.3 handshake completes before
    /// the server has checked the client's certificate; only this answer shows a rejection.
    async fn first_answer(stream: &mut TlsStream<TcpStream>) -> io::Result<String> {
        stream.write_all(b"PING\r\n").await?;
        stream.flush().await?;
        let mut line = Vec::new();
        while line.len() < MAX_FIRST_LINE_BYTES && !line.ends_with(b"\n") {
            line.push(stream.read_u8().await?);
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_redis_url_is_taken() {
        let code = |url: &str| client(url).map(|(_, address)| address).map_err(|e| e.code());
        let address = Ok("h:1/2".to_owned());
        assert_eq!(code("redis://user:pass@h:1/2?protocol=resp3"), address);
        let bad = ["", "h:1", "redis:", "redis://h/x", "http://h", "redis+unix:///s"];
        for bad in bad.into_iter().chain(["redis://h/0#insecure"]) {
            assert_eq!(code(bad), Err(Code::BadUrl), "{bad:?}");
        }
    }

    /// Trusting any certificate is not possible.
    #[tokio::test]
    async fn an_insecure_rediss_url_is_refused() {
        let opened = RedisConnector::new("rediss://h/0#insecure").await;
        let expected = if cfg!(feature = "tls") { Code::BadUrl } else { Code::NoTls };
        assert_eq!(opened.err().map(|error| error.code()), Some(expected));
    }
}
