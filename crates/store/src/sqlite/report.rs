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
    let Report { hold, number, document } = report;
    let last = hold::find(db, &hold.duty, now)?;
    let (_, committed) = checkpoint::find(db, &hold.duty)?.unwrap_or_default();
    let reported = rules::report(last.as_ref(), committed, session, hold);
    if reported == Reported::Stored {
        let (group, duty) = (hold.duty.group.as_str(), hold.duty.id.as_str());
        let (epoch, instance) = (hold.epoch.as_i64(), hold.instance.as_str());
        // Checked against the largest version, which fits.
        let number = number.cast_signed();
        let row = (group, duty, epoch, number, instance, document.as_bytes());
        execute(db, sql!("report/save"), row)?;
    }
    Ok(reported)
}

/// Epoch, number, instance, document and time.
type StoredReport = (i64, i64, String, Vec<u8>, i64);

pub(super) fn load(db: &Connection, duties: &[DutyKey]) -> StoreResult<Vec<Option<DutyReport>>> {
    let read = |(epoch, number, instance, document, unix_ms): StoredReport| {
        Ok(DutyReport {
            epoch: Epoch::from_i64(epoch)?,
            number: number.max(0).cast_unsigned(),
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
