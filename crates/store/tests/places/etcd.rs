//! An etcd that all clients share.

use std::sync::Arc;

use tenure_core::{DutyKey, Session, Store};
use tenure_etcd::{Client, DeleteRange, Limits, Range};
use tenure_store::conformance::{Boxed, Place};
use tenure_store::{IfAbsent, StoreUrl};

/// A prefix of its own on the server.
#[derive(Clone, Debug)]
pub struct Cluster {
    url: String,
    prefix: String,
}

impl Cluster {
    /// `unique` tells this run from all others on the same server.
    pub fn new(url: String, unique: u128) -> Self {
        let prefix = format!("suite-{unique:x}/");
        Self { url, prefix }
    }

    async fn raw(&self) -> Client {
        let hosts = self.url.trim_start_matches("etcd://");
        Client::connect(hosts.split(',').next().unwrap(), &Limits::default()).await.unwrap()
    }

    fn key(&self, group: &tenure_core::GroupName, rest: &str) -> String {
        format!("{}group/{}/{rest}", self.prefix, group.escaped())
    }
}

impl Place for Cluster {
    fn open(&self) -> Boxed<Arc<dyn Store>> {
        let url = StoreUrl::parse(&format!("{}?prefix={}", self.url, self.prefix)).unwrap();
        Box::pin(async move { url.open(IfAbsent::Create, super::unique()).await.unwrap() })
    }

    /// Ends the lease as the server does when its TTL is over.
    fn lapse(&self, session: Session) -> Boxed<()> {
        let place = self.clone();
        Box::pin(async move {
            let raw = place.raw().await;
            let instance = session.instance.escaped();
            let key = place.key(&session.group, &format!("live/session/{instance}"));
            let found = raw.range(&Range::of(key)).await.unwrap();
            let nonce = session.nonce.to_string();
            let Some(live) = found.kvs.iter().find(|kv| kv.value == nonce.as_bytes()) else {
                return;
            };
            // Somebody else may have ended it meanwhile.
            let _ = raw.lease_revoke(live.lease).await;
        })
    }

    fn lose_epoch(&self, duty: DutyKey) -> Boxed<()> {
        let place = self.clone();
        Box::pin(async move {
            let key = place.key(&duty.group, &format!("live/fence/{}", duty.id.escaped()));
            let one = DeleteRange { key: key.into(), ..DeleteRange::default() };
            let deleted = place.raw().await.delete_range(&one).await.unwrap();
            assert_eq!(deleted.deleted, 1);
        })
    }

    fn fresh(&self) -> Boxed<Arc<dyn Place>> {
        let fresh = Self::new(self.url.clone(), super::unique());
        Box::pin(async { Arc::new(fresh) as Arc<dyn Place> })
    }
}
