//! Client of etcd: the calls that the store needs, over gRPC.
//!
//! A [`Client`] is one connection to one server. It neither retries, nor chooses among servers, nor
//! sets time limits: the store does, because it knows which calls may be repeated. The caller also
//! provides encryption: a connection works over any byte stream.
//!
//! The messages are written by hand after etcd's `rpc.proto`, so that a build needs no `protoc`.
//!
//! Why: docs/decisions/0025-etcd-own-client.md

mod grpc;
mod message;

use hyper::Uri;
use hyper::header::HeaderValue;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

pub use grpc::{Error, KeepAlive, Limits, WatchStream};
pub use message::*;

/// gRPC status code for a missing entity.
const NOT_FOUND: i32 = 5;

/// A connection to one server. Clones share it; it closes with the last clone and stream.
#[derive(Clone)]
pub struct Client(grpc::GrpcChannel);

impl Client {
    /// Connects without encryption; for tools.
    pub async fn connect(address: &str, limits: &Limits) -> Result<Self, Error> {
        let socket = TcpStream::connect(address).await.map_err(Error::not_sent)?;
        socket.set_nodelay(true).map_err(Error::not_sent)?;
        Self::over(socket, &format!("http://{address}"), limits).await
    }

    /// Connects over an open stream; `origin` is `http://HOST:PORT` or `https://HOST:PORT`.
    pub async fn over<S>(stream: S, origin: &str, limits: &Limits) -> Result<Self, Error>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let origin: Uri = origin.parse().map_err(Error::not_sent)?;
        Ok(Self(grpc::GrpcChannel::new(Box::new(stream), origin, *limits).await?))
    }

    /// Signs in: later calls of this clone are made as that user.
    pub async fn sign_in(&mut self, name: &str, password: &str) -> Result<(), Error> {
        let request = AuthenticateRequest { name: name.to_owned(), password: password.to_owned() };
        let answer: AuthenticateResponse =
            self.0.call("/etcdserverpb.Auth/Authenticate", &request).await?;
        let mut token = HeaderValue::from_str(&answer.token).map_err(Error::lost)?;
        token.set_sensitive(true);
        self.0.token = Some(token);
        Ok(())
    }

    /// Reads keys at the current revision.
    pub async fn range(&self, request: &Range) -> Result<RangeResponse, Error> {
        self.0.call("/etcdserverpb.KV/Range", request).await
    }

    /// Deletes keys.
    pub async fn delete_range(&self, request: &DeleteRange) -> Result<DeleteRangeResponse, Error> {
        self.0.call("/etcdserverpb.KV/DeleteRange", request).await
    }

    /// Compares keys, then runs one of two lists of operations, atomically.
    pub async fn txn(&self, request: &Txn) -> Result<TxnResponse, Error> {
        self.0.call("/etcdserverpb.KV/Txn", request).await
    }

    /// Grants a lease with this id; for zero the server chooses one.
    pub async fn lease_grant(&self, id: i64, seconds: i64) -> Result<LeaseGrantResponse, Error> {
        let request = LeaseGrantRequest { ttl: seconds, id };
        self.0.call("/etcdserverpb.Lease/LeaseGrant", &request).await
    }

    /// Revokes a lease and deletes all keys attached to it.
    pub async fn lease_revoke(&self, id: i64) -> Result<LeaseRevokeResponse, Error> {
        self.0.call("/etcdserverpb.Lease/LeaseRevoke", &LeaseRevokeRequest { id }).await
    }

    /// Reads the remaining time of a lease.
    pub async fn lease_time_to_live(&self, id: i64) -> Result<LeaseTimeToLiveResponse, Error> {
        let request = LeaseTimeToLiveRequest { id, keys: false };
        self.0.call("/etcdserverpb.Lease/LeaseTimeToLive", &request).await
    }

    /// Extends a lease; returns the stream on which it can be extended again, and the answer.
    pub async fn lease_keep_alive(
        &self,
        id: i64,
    ) -> Result<(KeepAlive, LeaseKeepAliveResponse), Error> {
        let request = LeaseKeepAliveRequest { id };
        let mut stream = self.0.open("/etcdserverpb.Lease/LeaseKeepAlive", &request).await?;
        let answer: LeaseKeepAliveResponse = stream.first().await?;
        if answer.ttl <= 0 {
            let message = "etcdserver: requested lease not found".to_owned();
            return Err(Error::Status { code: NOT_FOUND, message });
        }
        Ok((KeepAlive { stream, request }, answer))
    }

    /// Opens a watch. Its first message reports whether the server has created it.
    pub async fn watch(&self, create: WatchCreate) -> Result<WatchStream, Error> {
        let request = WatchRequest { request: Some(WatchAction::Create(create)) };
        self.0.open("/etcdserverpb.Watch/Watch", &request).await
    }

    /// Reads the members of the cluster, as known to this server.
    pub async fn member_list(&self) -> Result<MemberListResponse, Error> {
        self.0.call("/etcdserverpb.Cluster/MemberList", &MemberListRequest {}).await
    }

    /// Reads the status of this server.
    pub async fn status(&self) -> Result<StatusResponse, Error> {
        self.0.call("/etcdserverpb.Maintenance/Status", &StatusRequest {}).await
    }

    /// Reads the active alarms of the cluster.
    pub async fn alarms(&self) -> Result<AlarmResponse, Error> {
        self.0.call("/etcdserverpb.Maintenance/Alarm", &AlarmRequest {}).await
    }
}
