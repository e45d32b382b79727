//! Reports.

use futures_util::future::join_all;
use tenure_core::store::{Checkpoint, DutyReport, Report, Reported};
use tenure_core::{Code, DutyKey, Hold, Mutant, Session, StoreError, StoreResult, Version};
use tenure_etcd::{Compare, KeyValue, Txn, TxnOp, TxnOpResponse, TxnOutcome};

use super::call::EtcdCall;
use super::key::{self, FenceRecord};
use super::read::{found, get};
use super::{MAX_CONCURRENT_TXNS, MAX_TXN_ITEMS, MAX_TXN_READS, equals, error};
use crate::clock::unix_ms;

impl EtcdCall<'_> {
    pub(super) async fn report_load(
        &self,
        duties: &[DutyKey],
    ) -> StoreResult<Vec<Option<DutyReport>>> {
        let names: Vec<String> = duties.iter().map(|duty| self.keys.report(duty)).collect();
        let mut stored = self.cluster.read_by(&names, MAX_TXN_READS).await?;
        let names: Vec<String> = duties.iter().map(|duty| self.keys.fence(duty)).collect();
        // Read after the reports: a duty that is forgotten in between has none.
        let fences = self.cluster.read_all(&names).await?;
        for (stored, fence) in stored.iter_mut().zip(&fences) {
            stored.take_if(|stored| !is_under(stored, fence.as_ref()));
        }
        let stored = stored.iter().map(|found| found.as_ref().map(unpack).transpose());
        let stored = stored.collect::<StoreResult<Vec<_>>>()?;
        stored.iter().flatten().for_each(|stored| self.saw(stored.epoch));
        Ok(stored)
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

    /// Writes reports if the session is alive, each if its hold is valid, and if the stored one,
    /// which is read first, is still the same: an attempt that comes late changes nothing.
    async fn report_part(&self, session: &Session, part: &[Report]) -> StoreResult<Vec<Reported>> {
        let names: Vec<String> =
            part.iter().map(|report| self.keys.report(&report.hold.duty)).collect();
        let stored = self.cluster.read_by(&names, MAX_TXN_READS).await?;
        let unix_ms = unix_ms();
        let mut ops = Vec::with_capacity(part.len());
        for ((Report { hold, number, document }, name), stored) in
            part.iter().zip(names).zip(&stored)
        {
            let fence = self.keys.fence(&hold.duty);
            let is_held = match hold.is_of(session) {
                true => equals(&fence, FenceRecord::of(hold).text()),
                // A key without a value equals none.
                false => equals(&self.keys.never(), ""),
            };
            let revision = stored.as_ref().map_or(0, |stored| stored.mod_revision);
            let is_same = Compare::mod_revision(name.as_str(), revision);
            let compares = if Mutant::R9Report.is_on() { vec![] } else { vec![is_held, is_same] };
            let stored = stored.as_ref().map(unpack).transpose()?;
            let is_late =
                stored.is_some_and(|old| old.epoch == hold.epoch && old.number >= *number);
            // Without a lease: a report outlives every session.
            let value = key::pack(Version::new(*number)?, hold, document, unix_ms);
            let write = if is_late { vec![] } else { vec![TxnOp::put(name, value)] };
            ops.push(TxnOp::txn(Txn::new().when(compares).and_then(write).or_else([get(&fence)])));
        }
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
                Some(TxnOutcome::Txn(txn)) if is_valid(&txn.responses, session, hold) => {
                    let why = "another report under the same hold came first";
                    return Err(StoreError::refused(Code::Busy, why).or_happened());
                }
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

/// Whether a report was written since its duty became known. An older version that forgets a duty
/// deletes the fence and leaves the report; the next grant creates another fence.
fn is_under(report: &KeyValue, fence: Option<&KeyValue>) -> bool {
    fence.is_some_and(|fence| fence.create_revision < report.mod_revision)
}

fn unpack(found: &KeyValue) -> StoreResult<DutyReport> {
    let Checkpoint { version, epoch, instance, document, unix_ms } = key::unpack(&found.value)?;
    Ok(DutyReport { epoch, number: version.get(), instance, document, unix_ms })
}

/// Whether a refused report has a valid hold, by the fence that was read.
fn is_valid(looks: &[TxnOpResponse], session: &Session, hold: &Hold) -> bool {
    let fence = looks.first().cloned().map(found).and_then(|mut found| found.pop());
    let text = FenceRecord::of(hold).text();
    hold.is_of(session) && fence.is_some_and(|fence| fence.value == text.as_bytes())
}
