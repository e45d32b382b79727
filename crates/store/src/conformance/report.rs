//! Contract 25 to 27: reports, and the wall clock.

use tenure_core::store::{
    Adopt, AuditRange, Commit, Committed, DutyReport, Forgotten, Report, Reported,
};
use tenure_core::{Code, Document, DutyKey, Epoch, Hold, Session, StoreError};

use super::kit::{Kit, doc, reason, version};

super::cases! { "report":
    there_is_none_at_first,
    a_report_can_be_read_back,
    a_newer_report_replaces_the_one_before,
    a_report_that_comes_late_changes_nothing,
    a_report_without_a_hold_is_fenced,
    a_report_after_a_takeover_is_fenced,
    a_report_after_an_expiry_is_fenced,
    a_report_after_a_release_is_fenced,
    a_report_by_another_session_is_fenced,
    a_report_under_an_older_epoch_is_fenced,
    a_report_below_the_epoch_of_the_checkpoint_is_fenced,
    a_batch_of_reports_answers_per_item,
    many_reports_are_stored_and_read_in_order,
    a_report_outlives_hold_and_session,
    a_report_and_a_checkpoint_leave_each_other_alone,
    a_forgotten_report_does_not_come_back,
    a_report_alone_is_forgotten,
    a_report_survives_an_adoption,
    a_report_causes_no_record,
    every_byte_of_a_report_is_kept,
    a_report_outside_the_limits_is_refused,
    the_wall_clock_is_the_one_that_dates_reports,
}

async fn held(kit: &Kit) -> (Session, Hold) {
    let session = kit.join("a").await;
    let hold = kit.hold(&session, "d").await;
    (session, hold)
}

async fn numbered(kit: &Kit, session: &Session, hold: &Hold, number: u64, text: &str) -> Reported {
    let report = Report { hold: hold.clone(), number, document: doc(text) };
    kit.store.report(session, &[report]).await.unwrap().remove(0)
}

/// Stores the next report.
async fn report(kit: &Kit, session: &Session, hold: &Hold, text: &str) -> Reported {
    let before = reported(kit, &hold.duty).await.filter(|before| before.epoch == hold.epoch);
    numbered(kit, session, hold, before.map_or(1, |before| before.number + 1), text).await
}

async fn reported(kit: &Kit, duty: &DutyKey) -> Option<DutyReport> {
    kit.store.reports(std::slice::from_ref(duty)).await.unwrap().remove(0)
}

/// Text of the stored report.
async fn text(kit: &Kit, duty: &DutyKey) -> Option<Document> {
    reported(kit, duty).await.map(|report| report.document)
}

async fn there_is_none_at_first(kit: Kit) {
    let (_, hold) = held(&kit).await;
    assert_eq!(reported(&kit, &hold.duty).await, None);
    assert_eq!(reported(&kit, &kit.duty("never")).await, None);
}

async fn a_report_can_be_read_back(kit: Kit) {
    let (a, hold) = held(&kit).await;
    assert_eq!(report(&kit, &a, &hold, "fine").await, Reported::Stored);
    let stored = reported(&kit.other_client().await, &hold.duty).await.unwrap();
    assert_eq!((stored.epoch, stored.instance), (hold.epoch, a.instance));
    assert_eq!(stored.document, doc("fine"));
}

async fn a_newer_report_replaces_the_one_before(kit: Kit) {
    let (a, hold) = held(&kit).await;
    for text in ["one", "two", "two", "three"] {
        assert_eq!(report(&kit, &a, &hold, text).await, Reported::Stored);
        assert_eq!(reported(&kit, &hold.duty).await.unwrap().document, doc(text));
    }
    kit.release(&a, &hold).await;
    let b = kit.join("b").await;
    let next = kit.hold(&b, "d").await;
    assert_eq!(report(&kit, &b, &next, "four").await, Reported::Stored);
    let stored = reported(&kit, &hold.duty).await.unwrap();
    assert_eq!((stored.epoch, stored.instance), (next.epoch, b.instance));
}

/// A repeated attempt, and one that was on its way while others followed.
async fn a_report_that_comes_late_changes_nothing(kit: Kit) {
    let (a, hold) = held(&kit).await;
    for (number, text, kept) in
        [(5, "five", "five"), (4, "four", "five"), (5, "again", "five"), (900, "last", "last")]
    {
        let before = reported(&kit, &hold.duty).await;
        assert_eq!(numbered(&kit, &a, &hold, number, text).await, Reported::Stored);
        let after = reported(&kit, &hold.duty).await;
        assert_eq!(after.as_ref().map(|stored| &stored.document), Some(&doc(kept)));
        assert_eq!(after == before, text != kept);
    }
    kit.release(&a, &hold).await;
    let next = kit.hold(&a, "d").await;
    // The numbers of a hold say nothing about those of the next one.
    assert_eq!(numbered(&kit, &a, &next, 1, "next").await, Reported::Stored);
    let stored = reported(&kit, &hold.duty).await.unwrap();
    assert_eq!((stored.epoch, stored.number, stored.document), (next.epoch, 1, doc("next")));
}

async fn a_report_without_a_hold_is_fenced(kit: Kit) {
    let (a, hold) = held(&kit).await;
    let forged = Hold { duty: kit.duty("never"), ..hold };
    assert!(matches!(report(&kit, &a, &forged, "x").await, Reported::Fenced { .. }));
    assert_eq!(reported(&kit, &forged.duty).await, None);
}

async fn a_report_after_a_takeover_is_fenced(kit: Kit) {
    let (a, old) = held(&kit).await;
    report(&kit, &a, &old, "first").await;
    kit.lapse(&a).await;
    let b = kit.join("b").await;
    let new = kit.hold(&b, "d").await;
    let late = report(&kit, &a, &old, "zombie").await;
    assert_eq!(late, Reported::Fenced { newest: new.epoch });
    assert_eq!(text(&kit, &old.duty).await, Some(doc("first")));
}

async fn a_report_after_an_expiry_is_fenced(kit: Kit) {
    let (a, hold) = held(&kit).await;
    kit.lapse(&a).await;
    let late = report(&kit, &a, &hold, "late").await;
    assert_eq!(late, Reported::Fenced { newest: hold.epoch });
    assert_eq!(reported(&kit, &hold.duty).await, None);
}

async fn a_report_after_a_release_is_fenced(kit: Kit) {
    let (a, hold) = held(&kit).await;
    report(&kit, &a, &hold, "last").await;
    kit.release(&a, &hold).await;
    let late = report(&kit, &a, &hold, "late").await;
    assert_eq!(late, Reported::Fenced { newest: hold.epoch });
    assert_eq!(text(&kit, &hold.duty).await, Some(doc("last")));
}

async fn a_report_by_another_session_is_fenced(kit: Kit) {
    let (_, hold) = held(&kit).await;
    let b = kit.join("b").await;
    assert!(matches!(report(&kit, &b, &hold, "x").await, Reported::Fenced { .. }));
    let stolen = Hold { instance: b.instance.clone(), nonce: b.nonce, ..hold.clone() };
    assert!(matches!(report(&kit, &b, &stolen, "x").await, Reported::Fenced { .. }));
    assert_eq!(reported(&kit, &hold.duty).await, None);
}

async fn a_report_under_an_older_epoch_is_fenced(kit: Kit) {
    let (a, old) = held(&kit).await;
    kit.release(&a, &old).await;
    let new = kit.hold(&a, "d").await;
    let late = report(&kit, &a, &old, "x").await;
    assert_eq!(late, Reported::Fenced { newest: new.epoch });
    assert_eq!(reported(&kit, &old.duty).await, None);
    assert_eq!(report(&kit, &a, &new, "y").await, Reported::Stored);
}

/// The record of the grant was lost and restored from before: the checkpoint knows better.
async fn a_report_below_the_epoch_of_the_checkpoint_is_fenced(kit: Kit) {
    let (a, old) = held(&kit).await;
    kit.release(&a, &old).await;
    let new = kit.hold(&a, "d").await;
    let commit = Commit { hold: new.clone(), expected: version(0), document: doc("newest") };
    assert_eq!(kit.store.commit(&a, &[commit]).await.unwrap(), [Committed::Saved(version(1))]);
    kit.place.lose_epoch(old.duty.clone()).await;
    let late = report(&kit, &a, &old, "x").await;
    assert!(matches!(late, Reported::Fenced { newest } if newest >= new.epoch), "{late:?}");
    assert_eq!(reported(&kit, &old.duty).await, None);
}

async fn a_batch_of_reports_answers_per_item(kit: Kit) {
    let a = kit.join("a").await;
    let holds = kit.hold_all(&a, &kit.duties(4)).await;
    kit.release(&a, &holds[2]).await;
    // Not in the order of the names: locks and answers must not depend on it.
    let order = [3, 2, 0, 1];
    let reports: Vec<_> = order
        .iter()
        .map(|n| Report {
            hold: holds[*n].clone(),
            number: 1,
            document: doc(&format!("report {n}")),
        })
        .collect();
    let answers = kit.store.report(&a, &reports).await.unwrap();
    let fenced = Reported::Fenced { newest: holds[2].epoch };
    assert_eq!(answers, [Reported::Stored, fenced, Reported::Stored, Reported::Stored]);
    for (n, hold) in holds.iter().enumerate() {
        let expected = (n != 2).then(|| doc(&format!("report {n}")));
        assert_eq!(text(&kit, &hold.duty).await, expected);
    }
    assert_eq!(kit.store.report(&a, &[]).await.unwrap(), []);
}

/// More than one script or transaction of any store takes.
async fn many_reports_are_stored_and_read_in_order(kit: Kit) {
    let a = kit.join("a").await;
    let duties = kit.duties(620);
    let holds = kit.hold_all(&a, &duties).await;
    let report = |hold: &Hold| {
        let document = doc(hold.duty.id.as_str());
        Report { hold: hold.clone(), number: 1, document }
    };
    let reports: Vec<_> = holds.iter().rev().map(report).collect();
    let answers = kit.store.report(&a, &reports).await.unwrap();
    assert_eq!(answers, vec![Reported::Stored; duties.len()]);
    let mut asked = duties;
    asked.push(kit.duty("never"));
    let stored = kit.store.reports(&asked).await.unwrap();
    for (duty, stored) in asked.iter().zip(&stored) {
        let expected = (duty.id.as_str() != "never").then(|| doc(duty.id.as_str()));
        assert_eq!(stored.as_ref().map(|stored| stored.document.clone()), expected);
    }
}

async fn a_report_outlives_hold_and_session(kit: Kit) {
    let (a, hold) = held(&kit).await;
    report(&kit, &a, &hold, "one").await;
    let before = reported(&kit, &hold.duty).await;
    kit.lapse(&a).await;
    assert_eq!(reported(&kit, &hold.duty).await, before);
    let b = kit.join("b").await;
    kit.hold(&b, "d").await;
    kit.store.close_session(&b, &reason("done")).await.unwrap();
    assert_eq!(reported(&kit, &hold.duty).await, before);
}

async fn a_report_and_a_checkpoint_leave_each_other_alone(kit: Kit) {
    let (a, hold) = held(&kit).await;
    report(&kit, &a, &hold, "report").await;
    assert_eq!(kit.load(&hold.duty).await, None);
    assert_eq!(kit.store.history(&hold.duty).await.unwrap(), []);
    let before = reported(&kit, &hold.duty).await;
    for n in 0..3 {
        kit.commit(&a, &hold, n, "cursor").await;
    }
    assert_eq!(reported(&kit, &hold.duty).await, before);
    let (checkpoint, history) =
        (kit.load(&hold.duty).await, kit.store.history(&hold.duty).await.unwrap());
    report(&kit, &a, &hold, "later").await;
    assert_eq!(kit.load(&hold.duty).await, checkpoint);
    assert_eq!(kit.store.history(&hold.duty).await.unwrap(), history);
    assert_eq!(kit.commit(&a, &hold, 3, "next").await, Committed::Saved(version(4)));
}

async fn a_forgotten_report_does_not_come_back(kit: Kit) {
    let (a, hold) = held(&kit).await;
    report(&kit, &a, &hold, "old").await;
    let duties = [hold.duty.clone()];
    let gone = reason("gone");
    let forget = || kit.store.forget(&duties, &gone);
    assert!(matches!(forget().await.unwrap()[0], Forgotten::HeldBy(_)));
    assert_eq!(text(&kit, &hold.duty).await, Some(doc("old")));
    kit.release(&a, &hold).await;
    assert!(matches!(forget().await.unwrap()[0], Forgotten::Forgotten { .. }));
    assert_eq!(reported(&kit, &hold.duty).await, None);
    kit.hold(&a, "d").await;
    assert_eq!(reported(&kit, &hold.duty).await, None);
}

/// The record of the grant was lost, and nothing else knows the duty.
async fn a_report_alone_is_forgotten(kit: Kit) {
    let (a, hold) = held(&kit).await;
    report(&kit, &a, &hold, "old").await;
    kit.release(&a, &hold).await;
    kit.place.lose_epoch(hold.duty.clone()).await;
    let duties = [hold.duty.clone()];
    match kit.store.forget(&duties, &reason("gone")).await.unwrap()[0] {
        Forgotten::Forgotten { floor } => assert!(floor >= hold.epoch),
        // It went with the grant.
        Forgotten::Absent => {}
        ref held => panic!("{held:?}"),
    }
    assert_eq!(reported(&kit, &hold.duty).await, None);
    kit.hold(&a, "d").await;
    assert_eq!(reported(&kit, &hold.duty).await, None);
    let again = kit.store.forget(&[kit.duty("never")], &reason("gone")).await.unwrap();
    assert_eq!(again, [Forgotten::Absent]);
}

async fn a_report_survives_an_adoption(kit: Kit) {
    let kit = kit.fresh().await;
    let (a, hold) = held(&kit).await;
    report(&kit, &a, &hold, "kept").await;
    kit.store.adopt(&Adopt { entropy: 7, floor: Epoch::ZERO }).await.unwrap();
    assert!(matches!(report(&kit, &a, &hold, "late").await, Reported::Fenced { .. }));
    assert_eq!(text(&kit, &hold.duty).await, Some(doc("kept")));
}

async fn a_report_causes_no_record(kit: Kit) {
    let (a, hold) = held(&kit).await;
    let audit = || async { kit.store.audit(&kit.group, AuditRange::first(100)).await.unwrap() };
    let before = audit().await;
    report(&kit, &a, &hold, "quiet").await;
    assert_eq!(audit().await, before);
}

async fn every_byte_of_a_report_is_kept(kit: Kit) {
    let (a, hold) = held(&kit).await;
    let bytes: Vec<u8> = (0..=255).cycle().take(Report::MAX_REPORT_BYTES).collect();
    for (number, bytes) in [(1, Vec::new()), (2, bytes)] {
        let document = Document::new(bytes).unwrap();
        let report = Report { hold: hold.clone(), number, document: document.clone() };
        assert_eq!(kit.store.report(&a, &[report]).await.unwrap(), [Reported::Stored]);
        assert_eq!(text(&kit, &hold.duty).await, Some(document));
    }
}

async fn a_report_outside_the_limits_is_refused(kit: Kit) {
    let (a, hold) = held(&kit).await;
    let fine = Report { hold: hold.clone(), number: 1, document: doc("fine") };
    let large = Document::new(vec![b'x'; Report::MAX_REPORT_BYTES + 1]).unwrap();
    let elsewhere = DutyKey::new("elsewhere", "d").unwrap();
    for bad in [
        vec![Report { document: large, ..fine.clone() }],
        vec![fine.clone(), fine.clone()],
        vec![Report { number: 0, ..fine.clone() }],
        vec![Report { number: 1 << 53, ..fine.clone() }],
        vec![Report { hold: Hold { duty: elsewhere, ..hold.clone() }, ..fine.clone() }],
    ] {
        let error = kit.store.report(&a, &bad).await.unwrap_err();
        assert!(matches!(&error, StoreError::Refused(_)), "{error}");
        assert_eq!(error.code(), Code::BadInput);
    }
    assert_eq!(reported(&kit, &hold.duty).await, None);
}

/// Some stores have no wall clock that can be read.
async fn the_wall_clock_is_the_one_that_dates_reports(kit: Kit) {
    let (a, hold) = held(&kit).await;
    let Some(before) = kit.store.wall_clock().await.unwrap() else { return };
    report(&kit, &a, &hold, "dated").await;
    let after = kit.store.wall_clock().await.unwrap().unwrap();
    let written = reported(&kit, &hold.duty).await.unwrap().unix_ms;
    // A millisecond is lost where SQL rounds.
    assert!((before..=after + 1).contains(&(written + 1)), "{before} {written} {after}");
    // After 2020, which a clock that counts from the start of the machine is not.
    assert!(before > 1_577_836_800_000);
}
