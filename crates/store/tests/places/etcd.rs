//! An etcd that all clients share.

use std::sync::Arc;

use etcd_client::Client;
use tenure_core::{DutyKey, Session, Store};
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
        let hosts: Vec<&str> = self.url.trim_start_matches("etcd://").split(',').collect();
        Client::connect(hosts, None).await.unwrap()
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
            let mut raw = place.raw().await;
            let instance = session.instance.escaped();
            let key = place.key(&session.group, &format!("live/session/{instance}"));
            let found = raw.get(key, None).await.unwrap();
            let nonce = session.nonce.to_string();
            let Some(live) = found.kvs().iter().find(|kv| kv.value() == nonce.as_bytes()) else {
                return;
            };
            // Somebody else may have ended it meanwhile.
            let _ = raw.lease_revoke(live.lease()).await;
        })
    }

    fn lose_epoch(&self, duty: DutyKey) -> Boxed<()> {
        let place = self.clone();
        Box::pin(async move {
            let key = place.key(&duty.group, &format!("live/fence/{}", duty.id.escaped()));
            let deleted = place.raw().await.delete(key, None).await.unwrap();
            assert_eq!(deleted.deleted(), 1);
        })
    }

    fn fresh(&self) -> Boxed<Arc<dyn Place>> {
        let fresh = Self::new(self.url.clone(), super::unique());
        Box::pin(async { Arc::new(fresh) as Arc<dyn Place> })
    }
}
