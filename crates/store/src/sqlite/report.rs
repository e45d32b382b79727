//! Reports, each call inside one transaction.

use rusqlite::Connection;
use tenure_core::store::{DutyReport, Report, Reported};
use tenure_core::{Document, DutyKey, Epoch, InstanceId, LocalInstant, Session, StoreResult};

use super::{checkpoint, execute, first, hold, sql};
use crate::state::rules;

pub(super) fn store(
    db: &Connection,
    session: &Session,
    reports: &[Report],
    now: LocalInstant,
) -> StoreResult<Vec<Reported>> {
    reports.iter().map(|report| store_one(db, session, report, now)).collect()
}

fn store_one(
    db: &Connection,
    session: &Session,
    report: &Report,
    now: LocalInstant,
) -> StoreResult<Reported> {
    let Report { hold, document } = report;
    let last = hold::find(db, &hold.duty, now)?;
    let (_, committed) = checkpoint::find(db, &hold.duty)?.unwrap_or_default();
    let reported = rules::report(last.as_ref(), committed, session, hold);
    if reported == Reported::Stored {
        let (group, duty) = (hold.duty.group.as_str(), hold.duty.id.as_str());
        let (epoch, instance) = (hold.epoch.as_i64(), hold.instance.as_str());
        execute(db, sql!("report/save"), (group, duty, epoch, instance, document.as_bytes()))?;
    }
    Ok(reported)
}

/// Epoch, instance, document and time.
type StoredReport = (i64, String, Vec<u8>, i64);

pub(super) fn load(db: &Connection, duties: &[DutyKey]) -> StoreResult<Vec<Option<DutyReport>>> {
    let read = |(epoch, instance, document, unix_ms): StoredReport| {
        Ok(DutyReport {
            epoch: Epoch::from_i64(epoch)?,
            instance: InstanceId::new(instance)?,
            document: Document::new(document)?,
            unix_ms: unix_ms.max(0) as u64,
        })
    };
    let load = |duty: &DutyKey| {
        let key = (duty.group.as_str(), duty.id.as_str());
        first(db, sql!("report/load"), key)?.map(read).transpose()
    };
    duties.iter().map(load).collect()
}
