//! Reports.

use futures_util::future::join_all;
use tenure_core::store::{Checkpoint, DutyReport, Report, Reported};
use tenure_core::{DutyKey, Mutant, Session, StoreResult, Version};
use tenure_etcd::{Txn, TxnOp, TxnOutcome};

use super::call::EtcdCall;
use super::key::{self, FenceRecord};
use super::{MAX_CONCURRENT_TXNS, MAX_TXN_ITEMS, MAX_TXN_READS, equals, error};
use crate::clock::unix_ms;

/// Version in the value of a report, which has the form of a checkpoint.
const NO_VERSION: Version = Version::ZERO;

impl EtcdCall<'_> {
    pub(super) async fn report_load(
        &self,
        duties: &[DutyKey],
    ) -> StoreResult<Vec<Option<DutyReport>>> {
        let names: Vec<String> = duties.iter().map(|duty| self.keys.report(duty)).collect();
        let stored = self.cluster.read_by(&names, MAX_TXN_READS).await?;
        let read = |value: &[u8]| {
            let Checkpoint { epoch, instance, document, unix_ms, .. } = key::unpack(value)?;
            self.saw(epoch);
            Ok(DutyReport { epoch, instance, document, unix_ms })
        };
        stored
            .iter()
            .map(|found| found.as_ref().map(|found| read(&found.value)).transpose())
            .collect()
    }

    pub(super) async fn report_store(
        &self,
        session: &Session,
        reports: &[Report],
    ) -> StoreResult<Vec<Reported>> {
        self.saw_holds(reports.iter().map(|report| &report.hold));
        let parts: Vec<&[Report]> = reports.chunks(MAX_TXN_ITEMS).collect();
        let mut reported = Vec::with_capacity(reports.len());
        for wave in parts.chunks(MAX_CONCURRENT_TXNS) {
            let writing = wave.iter().map(|part| self.report_part(session, part));
            for part in join_all(writing).await {
                reported.extend(part?);
            }
        }
        Ok(reported)
    }

    /// Writes reports if the session is alive, each if its hold is valid.
    async fn report_part(&self, session: &Session, part: &[Report]) -> StoreResult<Vec<Reported>> {
        let unix_ms = unix_ms();
        let write = |Report { hold, document }: &Report| {
            let is_held = match hold.is_of(session) {
                true => equals(&self.keys.fence(&hold.duty), FenceRecord::of(hold).text()),
                // A key without a value equals none.
                false => equals(&self.keys.never(), ""),
            };
            let compares = if Mutant::R9Report.is_on() { vec![] } else { vec![is_held] };
            let value = key::pack(NO_VERSION, hold, document, unix_ms);
            // Without a lease: a report outlives every session.
            let write = TxnOp::put(self.keys.report(&hold.duty), value);
            TxnOp::txn(Txn::new().when(compares).and_then([write]))
        };
        let ops: Vec<TxnOp> = part.iter().map(write).collect();
        let name = self.keys.session(&session.group, &session.instance);
        let alive = equals(&name, session.nonce.to_string());
        let done = self.weighed(Txn::new().when([alive]).and_then(ops)).await?;
        let mut responses = done.response.responses.into_iter();
        let mut reported = Vec::with_capacity(part.len());
        for Report { hold, .. } in part {
            let outcome = responses.next().and_then(|response| response.outcome);
            reported.push(match outcome {
                Some(TxnOutcome::Txn(txn)) if txn.succeeded => Reported::Stored,
                // An earlier attempt, whose answer was lost, may have written it.
                _ if done.unsure => return Err(error::lost(&self.cluster.address())),
                _ => Reported::Fenced { newest: self.newest_epoch(&hold.duty).await? },
            });
        }
        Ok(reported)
    }

    /// etcd has no clock that can be read.
    pub(super) async fn store_wall_clock(&self) -> StoreResult<Option<u64>> {
        Ok(None)
    }
}
