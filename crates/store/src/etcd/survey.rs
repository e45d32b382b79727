//! Facts about a cluster.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_core::StoreResult;
use tenure_core::guarantee::{Fact, Survey};
use tenure_etcd::{CORRUPT, Client, NO_SPACE, StatusResponse, WatchCreate};
use tokio::time::timeout;

use super::call::EtcdCall;
use super::cluster::ATTEMPT_TIMEOUT;
use super::error::RequestError;

/// Time limit for the status of one server.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

/// Default size limit of etcd's database; before version 3.6 etcd does not report the limit.
const DEFAULT_QUOTA: i64 = 2 << 30;

impl EtcdCall<'_> {
    pub(super) async fn store_survey(&self) -> StoreResult<Survey> {
        let listing = |client: Client| async move { client.member_list().await };
        let listed = self.cluster.repeat(ATTEMPT_TIMEOUT, listing).await;
        let mut addresses: BTreeSet<String> = self.cluster.addresses().map(str::to_owned).collect();
        let mut voters = None;
        match listed {
            Ok(listed) => {
                let members = listed.members;
                let voting = members.iter().filter(|member| !member.is_learner);
                voters = Some(voting.map(|member| member.id).collect::<BTreeSet<u64>>());
                let urls = members.iter().flat_map(|member| &member.client_urls);
                addresses.extend(urls.filter_map(|url| Some(url.split_once("://")?.1.to_owned())));
            }
            Err(RequestError::Refused(_)) => {}
            Err(trouble) => return Err(trouble.into_error()),
        }
        let asking = addresses.iter().map(|address| self.status(address));
        let statuses = futures_util::future::join_all(asking).await;
        let statuses: Vec<StatusResponse> = statuses.into_iter().flatten().collect();
        let has_leader = |status: &&StatusResponse| status.leader != 0;
        let answered: BTreeSet<u64> = statuses
            .iter()
            .filter(has_leader)
            .filter_map(|status| Some(status.header.as_ref()?.member_id))
            .filter(|id| voters.as_ref().is_none_or(|voters| voters.contains(id)))
            .collect();
        let size = statuses.iter().map(|status| status.db_size).max();
        let quota = statuses.iter().map(|status| status.db_size_quota).filter(|q| *q > 0).min();
        let percent = size.map(|size| (size * 100 / quota.unwrap_or(DEFAULT_QUOTA)).min(100));
        let on = |is_on: bool| if is_on { "on" } else { "off" }.to_owned();
        let alarms = self.alarms().await;
        // A cluster that refuses writes for lack of space is full, whatever its quota.
        let percent = match alarms.as_deref() {
            Some("nospace") => Some(100),
            _ => percent,
        };
        let facts = vec![
            fact("members", voters.map(|voters| voters.len().to_string())),
            fact("healthy_members", Some(answered.len().to_string())),
            fact("database_bytes", size.map(|size| size.to_string())),
            fact("quota_percent", percent.map(|percent| percent.to_string())),
            fact("alarms", alarms),
            fact("uncompacted_revisions", self.uncompacted().await.map(|n| n.to_string())),
            fact("auth", self.authenticates().await.map(on)),
            fact("tls", Some(on(self.cluster.is_encrypted))),
        ];
        Ok(Survey { backend: "etcd", facts, unix_ms: None })
    }

    async fn status(&self, address: &str) -> Option<StatusResponse> {
        let asking = async { self.cluster.connect(address).await.ok()?.status().await.ok() };
        timeout(STATUS_TIMEOUT, asking).await.ok().flatten()
    }

    async fn alarms(&self) -> Option<String> {
        let asking = |client: Client| async move { client.alarms().await };
        let raised = self.cluster.repeat(ATTEMPT_TIMEOUT, asking).await.ok()?;
        let has = |kind| raised.alarms.iter().any(|alarm| alarm.alarm == kind);
        let word = match (has(CORRUPT), has(NO_SPACE)) {
            (true, _) => "corrupt",
            (false, true) => "nospace",
            (false, false) => "none",
        };
        Some(word.to_owned())
    }

    /// Returns the number of revisions kept before the newest. A watch from the first revision
    /// reports the compacted revision, or, without one, the creation of the store's own key.
    async fn uncompacted(&self) -> Option<i64> {
        let key = self.keys.store().into_bytes();
        let first = WatchCreate { key, start_revision: 1, ..WatchCreate::default() };
        let asking = |client: Client| async move {
            let mut stream = client.watch(first).await?;
            while let Some(message) = stream.next().await? {
                if message.compact_revision > 0 {
                    return Ok(Some(message.compact_revision));
                }
                if !message.events.is_empty() {
                    return Ok(Some(0));
                }
            }
            Ok(None)
        };
        let compacted = self.cluster.attempt(STATUS_TIMEOUT, asking).await.ok().flatten()?;
        Some((self.cluster.revision() - compacted).max(0))
    }

    /// Whether the cluster requires authentication. Without a configured password a wrong one is
    /// sent: a cluster without authentication reports that.
    async fn authenticates(&self) -> Option<bool> {
        if self.cluster.signed_in.load(Ordering::Relaxed) {
            return Some(true);
        }
        let asking = |mut client: Client| async move { client.sign_in("tenure-survey", "").await };
        match self.cluster.attempt(STATUS_TIMEOUT, asking).await {
            Err(RequestError::NoAuth) => Some(false),
            Ok(_) | Err(RequestError::Refused(_)) => Some(true),
            Err(_) => None,
        }
    }
}

fn fact(setting: &'static str, value: Option<String>) -> Fact {
    value.map_or_else(|| Fact::unreadable(setting), |value| Fact::read(setting, value))
}
