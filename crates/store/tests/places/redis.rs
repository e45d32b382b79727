//! A Redis server that all clients share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Client};
use tenure_core::{DutyKey, Session, Store};
use tenure_store::IfAbsent;
use tenure_store::conformance::{Boxed, Place};
use tenure_store::redis::{Redis, RedisSettings};

/// Counts the prefixes of this run.
static FRESH: AtomicU64 = AtomicU64::new(0);

/// A prefix of its own on the server.
#[derive(Clone, Debug)]
pub struct Server {
    url: String,
    prefix: String,
}

impl Server {
    /// `unique` tells this run from all others on the same server.
    pub fn new(url: String, unique: u128) -> Self {
        let prefix = format!("suite-{unique:x}:");
        Self { url, prefix }
    }

    async fn raw(&self) -> MultiplexedConnection {
        let client = Client::open(self.url.as_str()).unwrap();
        client.get_multiplexed_async_connection().await.unwrap()
    }

    fn key(&self, group: &tenure_core::GroupName, rest: &str) -> String {
        format!("{}{}:{rest}", self.prefix, group.escaped())
    }
}

/// Ends a key as its TTL does, and not by a command that a script could have given.
async fn expire(raw: &mut MultiplexedConnection, key: &str) {
    let _: () = raw.pexpire(key, 0).await.unwrap();
}

impl Place for Server {
    fn open(&self) -> Boxed<Arc<dyn Store>> {
        let settings = RedisSettings {
            url: self.url.clone(),
            prefix: self.prefix.clone(),
            entropy: 7,
            if_absent: IfAbsent::Create,
        };
        Box::pin(async { Arc::new(Redis::open(settings).await.unwrap()) as Arc<dyn Store> })
    }

    /// In one transaction, because TTLs of one session end at one moment.
    fn lapse(&self, session: Session) -> Boxed<()> {
        let place = self.clone();
        Box::pin(async move {
            let mut raw = place.raw().await;
            let key = |rest: &str| place.key(&session.group, rest);
            let script = redis::Script::new(
                "if redis.call('HGET', KEYS[1], 'nonce') ~= ARGV[1] then return end
                 redis.call('PEXPIRE', KEYS[1], 0)
                 redis.call('PEXPIRE', KEYS[2], 0)
                 local grants = redis.call('HGETALL', KEYS[3])
                 for i = 1, #grants, 2 do
                   if string.sub(grants[i + 1], 1, 36) == ARGV[1] then
                     redis.call('PEXPIRE', ARGV[2] .. grants[i], 0)
                   end
                 end",
            );
            let instance = session.instance.escaped();
            let () = script
                .key(key(&format!("session:{instance}")))
                .key(key(&format!("node:{instance}")))
                .key(key("grants"))
                .arg(session.nonce.to_string())
                .arg(key("lease:"))
                .invoke_async(&mut raw)
                .await
                .unwrap();
        })
    }

    fn lose_epoch(&self, duty: DutyKey) -> Boxed<()> {
        let place = self.clone();
        Box::pin(async move {
            let mut raw = place.raw().await;
            let id = duty.id.escaped();
            for kind in ["fence", "lease"] {
                expire(&mut raw, &place.key(&duty.group, &format!("{kind}:{id}"))).await;
            }
            let grants = place.key(&duty.group, "grants");
            let _: () = raw.hdel(grants, &*id).await.unwrap();
        })
    }

    fn fresh(&self) -> Boxed<Arc<dyn Place>> {
        let number = FRESH.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("{}{number}:", self.prefix);
        let fresh = Self { prefix, url: self.url.clone() };
        Box::pin(async { Arc::new(fresh) as Arc<dyn Place> })
    }
}
