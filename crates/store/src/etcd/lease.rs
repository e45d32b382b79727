//! Leases by id.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;
use tenure_core::StoreResult;
use tenure_etcd::Client;
use tokio::time::sleep;

use super::MAX_CONCURRENT_TXNS;
use super::cluster::{ATTEMPT_TIMEOUT, EtcdCluster, KEEP_ALIVE_TIMEOUT, RETRY_PAUSE};
use super::error::RequestError;

impl EtcdCluster {
    /// Grants a lease. An existing lease with the same id is extended instead.
    ///
    /// A lease without keys is not counted as a change, because nothing can observe it.
    pub(super) async fn grant(&self, id: i64, seconds: i64) -> StoreResult<i64> {
        let sent = |client: Client| async move { client.lease_grant(id, seconds).await };
        loop {
            match self.repeat(ATTEMPT_TIMEOUT, sent).await {
                Ok(granted) => return Ok(granted.id),
                Err(RequestError::LeaseExists) => match self.extend(id).await {
                    Err(RequestError::LeaseGone) => {}
                    extended => {
                        return extended.map(|()| id).map_err(RequestError::into_error);
                    }
                },
                Err(trouble) => return Err(trouble.into_error()),
            }
        }
    }

    /// Extends a lease by its whole TTL. Repeats the request while the answer comes from a leader
    /// older than the caller's last read.
    pub(super) async fn extend(&self, id: i64) -> Result<(), RequestError> {
        loop {
            let sent = |client: Client| async move { client.lease_keep_alive(id).await };
            let (_, answer) = self.repeat(KEEP_ALIVE_TIMEOUT, sent).await?;
            if answer.term() >= self.term() {
                return Ok(());
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    /// Returns the TTL that a lease was granted with; `None` if it has ended.
    pub(super) async fn granted(&self, id: i64) -> StoreResult<Option<i64>> {
        let sent = |client: Client| async move { client.lease_time_to_live(id).await };
        match self.repeat(ATTEMPT_TIMEOUT, sent).await {
            Ok(left) => Ok(Some(left.granted_ttl).filter(|seconds| *seconds > 0)),
            Err(RequestError::LeaseGone) => Ok(None),
            Err(trouble) => Err(trouble.into_error()),
        }
    }

    /// Revokes a lease. If that fails, the lease ends by itself.
    pub(super) async fn revoke(&self, id: i64) {
        let sent = |client: Client| async move { client.lease_revoke(id).await };
        let _ = self.attempt(ATTEMPT_TIMEOUT, sent).await;
    }

    /// Reads the remaining time of leases; ended ones are left out.
    pub(super) async fn remaining(
        &self,
        leases: &BTreeSet<i64>,
    ) -> StoreResult<BTreeMap<i64, Duration>> {
        let ask = |id: i64| async move {
            let sent = |client: Client| async move { client.lease_time_to_live(id).await };
            match self.repeat(ATTEMPT_TIMEOUT, sent).await {
                Ok(left) => Ok(u64::try_from(left.ttl).ok().map(|s| (id, Duration::from_secs(s)))),
                Err(RequestError::LeaseGone) => Ok(None),
                Err(trouble) => Err(trouble.into_error()),
            }
        };
        let (ids, mut all): (Vec<i64>, _) = (leases.iter().copied().collect(), BTreeMap::new());
        for wave in ids.chunks(4 * MAX_CONCURRENT_TXNS) {
            for left in join_all(wave.iter().map(|id| ask(*id))).await {
                all.extend(left?);
            }
        }
        Ok(all)
    }
}
