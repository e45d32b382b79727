//! Connecting to one server.

use tenure_core::StoreResult;
use tenure_etcd::{Client, Limits};

use super::error::{self, RequestError};
use crate::tls::PemFiles;

/// Opens connections, encrypted or not.
pub(super) struct EtcdConnector {
    #[cfg(feature = "tls")]
    tls: Option<tokio_rustls::TlsConnector>,
}

impl EtcdConnector {
    #[cfg(not(feature = "tls"))]
    pub(super) async fn new(tls: Option<&PemFiles>) -> StoreResult<Self> {
        match tls {
            Some(_) => Err(crate::tls::not_built("this URL")),
            None => Ok(Self {}),
        }
    }

    #[cfg(not(feature = "tls"))]
    pub(super) async fn client(&self, address: &str) -> Result<Client, RequestError> {
        self.plain(address).await
    }

    async fn plain(&self, address: &str) -> Result<Client, RequestError> {
        Client::connect(address, &Limits::default())
            .await
            .map_err(|e| error::request_error(e, address))
    }
}

#[cfg(feature = "tls")]
mod encrypted {
    use std::sync::Arc;

    use rustls::pki_types::ServerName;
    use tokio::net::TcpStream;
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::tls::{Trust, explain, failed};

    impl EtcdConnector {
        /// Reads the files with certificates.
        pub(in super::super) async fn new(tls: Option<&PemFiles>) -> StoreResult<Self> {
            let Some(files) = tls else { return Ok(Self { tls: None }) };
            let mut config = crate::tls::client(Trust::Name, files.clone()).await?;
            // etcd selects the protocol by ALPN.
            config.alpn_protocols = vec![b"h2".to_vec()];
            Ok(Self { tls: Some(TlsConnector::from(Arc::new(config))) })
        }

        pub(in super::super) async fn client(&self, address: &str) -> Result<Client, RequestError> {
            let Some(connector) = &self.tls else { return self.plain(address).await };
            let unreachable = |_| RequestError::NotSent(error::unreachable(address));
            let socket = TcpStream::connect(address).await.map_err(unreachable)?;
            socket.set_nodelay(true).map_err(unreachable)?;
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
            let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            let unnamed =
                |_| RequestError::Refused(failed(format!("{host} is not a valid TLS server name")));
            let name = ServerName::try_from(host.clone()).map_err(unnamed)?;
            let stream = connector.connect(name, socket).await.map_err(|e| match explain(&e) {
                // Another server may have a valid certificate.
                Some(why) => RequestError::NotSent(failed(format!("{address}: {why}"))),
                None => RequestError::NotSent(error::unreachable(address)),
            })?;
            let origin = format!("https://{address}");
            let client = Client::over(stream, &origin, &Limits::default()).await;
            client.map_err(|e| error::request_error(e, address))
        }
    }
}
