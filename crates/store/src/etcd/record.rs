//! The store's record: finding, checking and replacing it.

use std::sync::atomic::Ordering;

use tenure_core::store::Retention;
use tenure_core::{Code, Epoch, StoreError, StoreResult};
use tenure_etcd::{KeyValue, Txn, TxnOp};

use super::call::EtcdCall;
use super::key::StoreMarker;
use super::read::get;
use super::{HandleState, absent, unchanged};
use crate::IfAbsent;
use crate::clock::unix_ms;

/// The store's record and the revision at which it was written.
pub(super) struct StoreRevision {
    pub(super) record: StoreMarker,
    pub(super) revision: i64,
}

impl EtcdCall<'_> {
    /// Finds or creates the store when this handle has none.
    pub(super) async fn ready(&self) -> StoreResult<()> {
        if self.known().incarnation.is_some() {
            return Ok(());
        }
        self.find().await
    }

    pub(super) async fn find(&self) -> StoreResult<()> {
        let name = self.keys.store();
        loop {
            let [found] = self.cluster.read([get(&name)]).await?;
            if let Some(found) = found.first() {
                let mut record = StoreMarker::parse(&found.value)?;
                // The creator of this store may have seen lower epochs of the previous one.
                if record.floor.get() < self.seen.load(Ordering::Relaxed) {
                    record.floor = self.first_floor()?;
                    let put = TxnOp::put(name.as_str(), record.text());
                    let still = unchanged(&name, found.mod_revision);
                    self.commit(Txn::new().when([still]).and_then([put])).await?;
                    continue;
                }
                let mut known = self.known();
                known.retention = record.retention;
                known.incarnation = Some(record.incarnation);
                known.had_one = true;
                return Ok(());
            }
            if self.if_absent == IfAbsent::Refuse {
                let detail = format!("no key {name} on {}", self.cluster.address());
                return Err(StoreError::refused(Code::Absent, detail));
            }
            let offer = {
                let mut known = self.known();
                known.offered += 1;
                known.offered
            };
            let record = StoreMarker {
                incarnation: format!("{:032x}-{offer}", self.entropy),
                after: String::new(),
                floor: self.first_floor()?,
                retention: Retention::default(),
            };
            let put = TxnOp::put(name.as_str(), record.text());
            let txn = Txn::new().when([absent(&name)]).and_then([put]);
            self.commit(txn).await?;
        }
    }

    /// Returns the floor of a new store: above every epoch that this handle has seen. If it
    /// replaces an earlier store, other handles may have seen higher epochs, so it is also above
    /// the clock in microseconds. No duty is granted more often than once per microsecond.
    fn first_floor(&self) -> StoreResult<Epoch> {
        let clock = if self.known().had_one { unix_ms().saturating_mul(1_000) } else { 0 };
        let seen = self.seen.load(Ordering::Relaxed);
        // A clock value beyond the largest epoch must not exhaust the epochs.
        let clock = Epoch::new(clock).ok().filter(|clock| clock.next().is_ok());
        Ok(Epoch::new(seen)?.max(clock.unwrap_or(Epoch::ZERO)))
    }

    /// Checks the store's record as just read.
    pub(super) fn ground(&self, found: &[KeyValue]) -> StoreResult<StoreRevision> {
        let reset = |known: &mut HandleState| {
            known.incarnation = None;
            known.memory = None;
            let detail = format!("the store at {} was replaced or reset", self.cluster.address());
            StoreError::refused(Code::Reset, detail)
        };
        let mut known = self.known();
        let Some(found) = found.first() else { return Err(reset(&mut known)) };
        let record = StoreMarker::parse(&found.value)?;
        if known.incarnation.as_ref() != Some(&record.incarnation) {
            // An adoption has ended every session, and its record names the incarnation before it.
            if known.incarnation.as_ref() != Some(&record.after) {
                return Err(reset(&mut known));
            }
            known.incarnation = Some(record.incarnation.clone());
        }
        known.retention = record.retention;
        Ok(StoreRevision { record, revision: found.mod_revision })
    }

    /// Changes the store's record, retrying on concurrent changes.
    pub(super) async fn record_change(
        &self,
        change: impl Fn(&mut StoreMarker),
    ) -> StoreResult<StoreRevision> {
        let name = self.keys.store();
        loop {
            let [found] = self.cluster.read([get(&name)]).await?;
            let Some(found) = found.first() else {
                return Err(StoreError::refused(Code::Reset, "the store's record was deleted"));
            };
            let mut record = StoreMarker::parse(&found.value)?;
            change(&mut record);
            let put = TxnOp::put(name.as_str(), record.text());
            let txn = Txn::new().when([unchanged(&name, found.mod_revision)]).and_then([put]);
            // Repeating the change after a lost answer yields the same record.
            let done = self.commit(txn).await?;
            if done.response.succeeded {
                let revision = done.response.header.as_ref().map_or(0, |header| header.revision);
                return Ok(StoreRevision { record, revision });
            }
        }
    }
}
