//! Concurrent callers: contract sentences that must hold under contention.

use std::collections::BTreeMap;

use tenure_core::invariant::{self, Step};
use tenure_core::store::{
    AuditKind, AuditRange, Claimed, Committed, HoldFate, KeptAlive, OpenSession, Opened, Replaced,
};
use tenure_core::{DutyKey, Hold, Note, Session};
use tokio::task::JoinSet;

use super::kit::{Kit, doc, reason, version};

super::cases! { "race":
    twenty_racers_for_fifty_expired_duties,
    twenty_racers_for_fifty_new_duties,
    one_instance_opened_by_many,
    one_nonce_opened_by_many,
    one_version_committed_by_many,
    a_group_document_counts_every_writer,
    notes_are_never_torn,
    claims_and_releases_keep_every_invariant,
    a_closing_session_leaves_no_hold_behind,
    keep_alive_and_takeover_never_both_win,
    calls_that_are_dropped_leave_a_sound_store,
}

const RACERS: usize = 20;
const DUTIES: usize = 50;

/// Runs `racers` concurrently and collects their answers in the order of the racers.
pub(super) async fn race<T, F>(kit: &Kit, racers: usize, run: impl Fn(Kit, usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    // Stores limit their connections, so all racers share a few clients.
    let clients = [kit.clone(), kit.other_client().await, kit.other_client().await];
    for racer in 0..racers {
        let running = run(clients[racer % clients.len()].clone(), racer);
        tasks.spawn(async move { (racer, running.await) });
    }
    let mut answers = tasks.join_all().await;
    answers.sort_by_key(|(racer, _)| *racer);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Each duty must have exactly one winner, whose epoch is above `before`.
fn one_winner_each(answers: Vec<Vec<Claimed>>, before: &BTreeMap<DutyKey, Hold>) {
    let mut winners: BTreeMap<DutyKey, Hold> = BTreeMap::new();
    for claimed in answers.into_iter().flatten() {
        if let Claimed::Granted(hold) = claimed {
            let second = winners.insert(hold.duty.clone(), hold);
            assert!(second.is_none(), "two winners: {second:?}");
        }
    }
    assert_eq!(winners.len(), DUTIES);
    for (duty, hold) in &winners {
        assert!(before.get(duty).is_none_or(|old| hold.epoch > old.epoch), "{hold:?}");
    }
}

async fn contenders(kit: &Kit) -> Vec<Session> {
    let mut sessions = Vec::new();
    for racer in 0..RACERS {
        sessions.push(kit.join(&format!("racer{racer:02}")).await);
    }
    sessions
}

async fn twenty_racers_for_fifty_expired_duties(kit: Kit) {
    let duties = kit.duties(DUTIES);
    // Two ended sessions with holds, so that racers contend for sessions as well as duties.
    let (dead, also_dead) = (kit.join("dead").await, kit.join("also-dead").await);
    let mut before = kit.hold_all(&dead, &duties[..25]).await;
    before.extend(kit.hold_all(&also_dead, &duties[25..]).await);
    let before = before.into_iter().map(|hold| (hold.duty.clone(), hold)).collect();
    kit.lapse(&dead).await;
    kit.lapse(&also_dead).await;
    let sessions = contenders(&kit).await;
    let answers = race(&kit, RACERS, |kit, racer| {
        let (session, mut duties) = (sessions[racer].clone(), duties.clone());
        duties.rotate_left(racer * 7 % DUTIES);
        async move { kit.claim(&session, &duties).await }
    })
    .await;
    one_winner_each(answers, &before);
}

async fn twenty_racers_for_fifty_new_duties(kit: Kit) {
    let duties = kit.duties(DUTIES);
    let sessions = contenders(&kit).await;
    let answers = race(&kit, RACERS, |kit, racer| {
        let (session, mut duties) = (sessions[racer].clone(), duties.clone());
        duties.rotate_right(racer * 3 % DUTIES);
        async move { kit.claim(&session, &duties).await }
    })
    .await;
    one_winner_each(answers, &BTreeMap::new());
}

async fn one_instance_opened_by_many(kit: Kit) {
    let instance = kit.wish("same").instance;
    let answers = race(&kit, RACERS, |kit, _| {
        let wish = OpenSession { instance: instance.clone(), ..kit.wish("x") };
        async move { kit.open(&wish).await }
    })
    .await;
    let open = answers.iter().filter(|opened| matches!(opened, Opened::Open(_))).count();
    let taken = answers.iter().filter(|opened| **opened == Opened::Taken).count();
    assert_eq!((open, taken), (1, RACERS - 1));
}

async fn one_nonce_opened_by_many(kit: Kit) {
    let wish = kit.wish("same");
    let answers = race(&kit, RACERS, |kit, _| {
        let wish = wish.clone();
        async move { kit.open(&wish).await }
    })
    .await;
    assert_eq!(answers, vec![Opened::Open(wish.session()); RACERS]);
    let joined = kit.store.audit(&kit.group, AuditRange::first(100)).await.unwrap();
    assert_eq!(joined.len(), 1, "{joined:?}");
}

async fn one_version_committed_by_many(kit: Kit) {
    let a = kit.join("a").await;
    let hold = kit.hold(&a, "d").await;
    let answers = race(&kit, RACERS, |kit, racer| {
        let (a, hold) = (a.clone(), hold.clone());
        async move { kit.commit(&a, &hold, 0, &format!("writer {racer}")).await }
    })
    .await;
    let saved: Vec<_> =
        (0..RACERS).filter(|racer| answers[*racer] == Committed::Saved(version(1))).collect();
    assert_eq!(saved.len(), 1, "{answers:?}");
    let stored = kit.load(&hold.duty).await.unwrap();
    assert_eq!(stored.document, doc(&format!("writer {}", saved[0])));
    assert_eq!(kit.store.history(&hold.duty).await.unwrap().len(), 1);
}

async fn a_group_document_counts_every_writer(kit: Kit) {
    const EACH: usize = 5;
    race(&kit, 8, |kit, racer| async move {
        let mut done = 0;
        while done < EACH {
            let read = kit.store.group_document(&kit.group).await.unwrap();
            let line = format!("{racer}.{done};");
            let mut bytes = read.document.as_bytes().to_vec();
            // If the reply was lost, the line is found on the next read.
            if String::from_utf8_lossy(&bytes).contains(&line) {
                done += 1;
                continue;
            }
            bytes.extend(line.as_bytes());
            let document = tenure_core::Document::new(bytes).unwrap();
            let replaced = kit.store.replace_group_document(&kit.group, read.version, &document);
            if matches!(replaced.await.unwrap(), Replaced::Saved(_)) {
                done += 1;
            }
        }
    })
    .await;
    let read = kit.store.group_document(&kit.group).await.unwrap();
    assert_eq!(read.version, version(8 * EACH as u64));
    let lines = String::from_utf8(read.document.as_bytes().to_vec()).unwrap();
    assert_eq!(lines.matches(';').count(), 8 * EACH);
}

async fn notes_are_never_torn(kit: Kit) {
    let a = kit.join("a").await;
    race(&kit, 8, |kit, racer| {
        let a = a.clone();
        async move {
            let mine = char::from(b'a' + racer as u8).to_string().repeat(1000);
            for _ in 0..5 {
                let note = Note::new(mine.clone()).unwrap();
                kit.store.keep_alive(&a, Some(&note), &[]).await.unwrap();
                let seen = kit.store.members(&kit.group).await.unwrap().remove(0).note;
                let first = seen.as_str().chars().next();
                assert_eq!(seen.as_str().len(), 1000);
                assert!(seen.as_str().chars().all(|c| Some(c) == first));
            }
        }
    })
    .await;
}

async fn claims_and_releases_keep_every_invariant(kit: Kit) {
    race(&kit, 6, |kit, racer| async move {
        let session = kit.join(&format!("worker{racer}")).await;
        for round in 0..12 {
            let claimed = kit.claim(&session, &kit.duties(4)).await;
            for hold in claimed.into_iter().filter_map(|claimed| match claimed {
                Claimed::Granted(hold) => Some(hold),
                _ => None,
            }) {
                let stored = kit.load(&hold.duty).await.map_or(0, |c| c.version.get());
                let text = format!("{racer}.{round}");
                let committed = kit.commit(&session, &hold, stored, &text).await;
                assert!(matches!(committed, Committed::Saved(_)), "{committed:?}");
                kit.release(&session, &hold).await;
            }
        }
    })
    .await;
    let mut history = Vec::new();
    for entry in kit.store.audit(&kit.group, AuditRange::first(10_000)).await.unwrap() {
        if entry.kind == AuditKind::Granted {
            let (duty, epoch) = (entry.duty.unwrap(), entry.epoch.unwrap());
            history.push(Step::Granted { duty, epoch, instance: entry.instance });
        }
    }
    assert!(history.len() >= 6, "{history:?}");
    for duty in kit.duties(4) {
        let mut ring = kit.store.history(&duty).await.unwrap();
        ring.reverse();
        history.extend(ring.into_iter().map(|checkpoint| Step::Committed {
            duty: duty.clone(),
            epoch: checkpoint.epoch,
            version: checkpoint.version,
        }));
    }
    assert_eq!(invariant::check(&history), Ok(()));
}

async fn a_closing_session_leaves_no_hold_behind(kit: Kit) {
    for round in 0..10 {
        let a = kit.join(&format!("a{round}")).await;
        let duties = kit.duties(10);
        let (claimer, closer) = (kit.clone(), kit.other_client().await);
        let (session, wanted) = (a.clone(), duties.clone());
        let claiming = tokio::spawn(async move { claimer.claim(&session, &wanted).await });
        closer.store.close_session(&a, &reason("done")).await.unwrap();
        claiming.await.unwrap();
        // Whatever the order, nothing of a closed session may block the next one.
        let b = kit.join(&format!("b{round}")).await;
        kit.hold_all(&b, &duties).await;
        kit.store.close_session(&b, &reason("done")).await.unwrap();
    }
}

/// The holder extends while another instance claims a duty that looks expired: never both succeed.
async fn keep_alive_and_takeover_never_both_win(kit: Kit) {
    for round in 0..10 {
        let duty = kit.duty(&format!("d{round}"));
        let wanted = std::slice::from_ref(&duty);
        let (a, b) = (kit.join("a").await, kit.join("b").await);
        let hold = kit.hold_all(&a, wanted).await.remove(0);
        let holder = kit.other_client().await;
        let lapsing = kit.lapse(&a);
        let keeping = holder.keep_alive(&a, std::slice::from_ref(&hold));
        let (kept, ()) = tokio::join!(keeping, lapsing);
        let claimed = kit.claim(&b, wanted).await.remove(0);
        let still = kit.keep_alive(&a, std::slice::from_ref(&hold)).await;
        match claimed {
            Claimed::Granted(new) => {
                assert!(new.epoch > hold.epoch);
                assert_eq!(still, KeptAlive::Ended, "kept before: {kept:?}");
            }
            Claimed::HeldBy(_) => {
                let KeptAlive::Kept { holds, .. } = still else { panic!("{still:?}") };
                assert_eq!(holds, [HoldFate::Kept]);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A dropped call may still happen, but never in part, and the store keeps working.
async fn calls_that_are_dropped_leave_a_sound_store(kit: Kit) {
    let a = kit.join("a").await;
    let holds = kit.hold_all(&a, &kit.duties(8)).await;
    for round in 0..40 {
        let (kit, a, hold) = (kit.clone(), a.clone(), holds[round % 8].clone());
        let expected = kit.load(&hold.duty).await.map_or(0, |c| c.version.get());
        let call = tokio::spawn(async move { kit.commit(&a, &hold, expected, "x").await });
        for _ in 0..round % 7 {
            tokio::task::yield_now().await;
        }
        call.abort();
        let _ = call.await;
    }
    for hold in &holds {
        // A dropped commit may still arrive; this one then gets a conflict.
        let mut stored = kit.load(&hold.duty).await.map_or(0, |c| c.version.get());
        loop {
            match kit.commit(&a, hold, stored, "last").await {
                Committed::Saved(_) => break,
                Committed::Conflict { stored: newer } => stored = newer.get(),
                other => panic!("{other:?}"),
            }
        }
        let newest = kit.load(&hold.duty).await.unwrap();
        assert_eq!(newest.document, doc("last"));
        assert_eq!(kit.store.history(&hold.duty).await.unwrap().first(), Some(&newest));
    }
    assert!(kit.fates(&a, &holds).await.iter().all(|fate| *fate == HoldFate::Kept));
}
