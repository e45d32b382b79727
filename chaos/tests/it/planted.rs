//! Histories with one fault each, which must be found.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure::guarantee::Level;
use tenure_chaos::{
    Belief, ChaosReport, ChaosStore, CommitResult, FailedOver, FinalState, InstanceLog,
    InstanceRecord, RunHistory, Spared, Under, WrittenVersion, measure, spare,
};

fn under(epoch: u64) -> Under {
    Under { duty: "0".to_owned(), epoch }
}

fn commit(epoch: u64, event: u64, before: u64, outcome: CommitResult) -> InstanceRecord {
    InstanceRecord::Commit { under: under(epoch), event, before, after: before + 5, outcome }
}

fn saved(epoch: u64, event: u64, before: u64, version: u64) -> InstanceRecord {
    commit(epoch, event, before, CommitResult::Saved(version))
}

fn told(instance: &str, lines: &[InstanceRecord]) -> InstanceLog {
    InstanceLog { instance: instance.to_owned(), lines: lines.to_vec() }
}

fn grants(of: &[(u64, &str)]) -> FinalState {
    let grant = |(epoch, instance): &(u64, &str)| ("0".to_owned(), *epoch, (*instance).to_owned());
    FinalState { grants: of.iter().map(grant).collect(), kept: Vec::new() }
}

fn wrong(told: &[InstanceLog], stored: &FinalState) -> Vec<String> {
    RunHistory::merge("g", told, stored).judge().unwrap()
}

#[test]
fn a_sound_history_passes() {
    let a = told("a", &[saved(1, 1, 10, 1), saved(1, 2, 20, 2)]);
    // It loads, finds a commit whose response its predecessor did not get, and continues.
    let found =
        InstanceRecord::Found { under: under(1), version: 3, instance: "a".to_owned(), event: 3 };
    let b = told("b", &[found, saved(2, 4, 40, 4), commit(2, 5, 50, CommitResult::Unknown)]);
    let late = told("a", &[commit(1, 5, 60, CommitResult::Refused)]);
    let stored = grants(&[(1, "a"), (2, "b")]);
    assert_eq!(wrong(&[a, b, late], &stored), Vec::<String>::new());
}

#[test]
fn each_planted_fault_is_found() {
    let stored = grants(&[(1, "a"), (2, "b")]);
    let both = |a: &[InstanceRecord], b: &[InstanceRecord]| {
        let found = wrong(&[told("a", a), told("b", b)], &stored);
        assert!(!found.is_empty(), "{a:?} and {b:?} pass");
        found.join("\n")
    };
    // An older epoch after a newer one, by version and by time.
    let text = both(&[saved(1, 2, 30, 2)], &[saved(2, 1, 10, 1)]);
    assert!(text.contains("L3") && text.contains("C1") && text.contains("began after"), "{text}");
    // By time alone: it is first in the store's order, which is impossible.
    let text = both(&[saved(1, 1, 30, 1)], &[saved(2, 2, 10, 2)]);
    assert!(!text.contains("L3") && text.contains("began after"), "{text}");
    // Two instances whose commits got the same version.
    assert!(both(&[saved(1, 1, 10, 1)], &[saved(2, 1, 20, 1)]).contains("written twice"));
    // A repeated event, and a skipped one.
    assert!(both(&[saved(1, 1, 10, 1)], &[saved(2, 1, 20, 2)]).contains("D1"));
    assert!(both(&[saved(1, 1, 10, 1)], &[saved(2, 3, 20, 2)]).contains("after 1, 1"));
    // One epoch for two instances.
    assert!(both(&[saved(1, 1, 10, 1)], &[saved(1, 2, 20, 2)]).contains("L1"));
    // An unfenced effect after one of a newer epoch.
    let unfenced = |epoch, event, at| commit(epoch, event, at, CommitResult::Unfenced);
    assert!(both(&[unfenced(1, 1, 30)], &[unfenced(2, 2, 10)]).contains("L3"));
}

#[test]
fn what_the_store_forgot_or_granted_twice_is_found() {
    let a = [told("a", &[saved(1, 1, 10, 1), saved(1, 2, 20, 2)])];
    let mut stored = grants(&[(1, "a")]);
    let first = WrittenVersion { version: 1, epoch: 1, instance: "a".to_owned(), event: 1 };
    stored.kept = vec![("0".to_owned(), vec![first])];
    assert!(wrong(&a, &stored).join("\n").contains("was acknowledged"));
    assert!(wrong(&[], &grants(&[(2, "a"), (1, "b")])).join("\n").contains("L2"));
    // Granted to one instance in the store, and to another in that one's own records.
    let record = InstanceRecord::Record {
        at: 5,
        change: "acquired".to_owned(),
        under: Some(under(1)),
        reason: "free".to_owned(),
    };
    assert!(wrong(&[told("b", &[record])], &grants(&[(1, "a")])).join("\n").contains("L1"));
}

fn acquired(epoch: u64, at: u64) -> InstanceRecord {
    let (change, reason) = ("acquired".to_owned(), "free".to_owned());
    InstanceRecord::Record { at, change, under: Some(under(epoch)), reason }
}

/// State of a standby that took over at 100 and received nothing after 40.
fn taken_over() -> FinalState {
    let written = |version, epoch, instance: &str| {
        let instance = instance.to_owned();
        WrittenVersion { version, epoch, instance, event: version }
    };
    let kept = vec![written(1, 1, "a"), written(2, 2, "c"), written(3, 2, "c")];
    FinalState { kept: vec![("0".to_owned(), kept)], ..grants(&[(1, "a"), (2, "c")]) }
}

#[test]
fn what_a_primary_told_alone_is_spared_and_nothing_else() {
    let found =
        InstanceRecord::Found { under: under(1), version: 2, instance: "a".to_owned(), event: 2 };
    // One instance writes and dies, another takes over its duty; the standby receives none of it.
    let a = vec![acquired(1, 5), saved(1, 1, 10, 1), saved(1, 2, 50, 2)];
    let b = vec![acquired(2, 60), found.clone(), saved(2, 3, 70, 3)];
    let c = vec![acquired(2, 110), saved(2, 2, 120, 2), saved(2, 3, 130, 3)];
    let judged = |a: &[InstanceRecord], b: &[InstanceRecord], c: &[InstanceRecord]| {
        let told = [told("a", a), told("b", b), told("c", c)];
        assert!(!wrong(&told, &taken_over()).is_empty(), "it shows nothing");
        let (rest, spared) = spare(&told, &taken_over(), &(40..100));
        (wrong(&rest, &taken_over()).join("\n"), spared)
    };
    let all = Spared { commits: 2, reads: 1, grants: 1 };
    assert_eq!(judged(&a, &b, &c), (String::new(), all));

    let and = |lines: &[InstanceRecord], more: InstanceRecord| [lines, &[more]].concat();
    // Acknowledged before, and after.
    let (text, _) = judged(&and(&a, saved(1, 4, 30, 4)), &b, &c);
    assert!(text.contains("was acknowledged"), "{text}");
    let (text, _) = judged(&a, &b, &and(&c, saved(2, 4, 140, 4)));
    assert!(text.contains("was acknowledged"), "{text}");
    // After its death a primary acknowledges nothing, although no other has taken over yet. Its
    // last response may be received later.
    let died = |at: u64, before: u64| {
        let told = [told("a", &and(&a, saved(1, 4, before, 4))), told("b", &b), told("c", &c)];
        let (rest, spared) = spare(&told, &taken_over(), &(40..at));
        (wrong(&rest, &taken_over()).join("\n"), spared.commits)
    };
    assert_eq!(died(90, 88), (String::new(), 3));
    let (text, commits) = died(90, 92);
    assert!(text.contains("was acknowledged") && commits == 2, "{text}");
    // A hold that is not stored, and continues afterwards.
    let (text, _) = judged(&a, &and(&b, acquired(2, 125)), &c);
    assert!(text.contains("L1"), "{text}");
    let (text, _) = judged(&a, &b, &and(&c, found));
    assert!(text.contains("written twice"), "{text}");
    // Stored versions are always judged: an older epoch after a newer one.
    let late = [vec![acquired(1, 5), saved(1, 1, 150, 1)], a[2..].to_vec()].concat();
    let (text, _) = judged(&late, &b, &c);
    assert!(text.contains("began after"), "{text}");
}

#[test]
fn a_failover_is_broken_by_what_is_left() {
    let report = |wrong: &[&str]| ChaosReport {
        kind: ChaosStore::Postgres,
        seed: 0,
        lasted: Duration::ZERO,
        faults: BTreeMap::new(),
        instances: 1,
        effects: 1,
        moves: 0,
        gaps: Vec::new(),
        overlapping: 0,
        belief: measure(&[]),
        refused: 0,
        unknown: 0,
        recovered: None,
        wrong: wrong.iter().map(|what| (*what).to_owned()).collect(),
    };
    let wrong = |synchronous, commits, found: &[&str]| {
        let level = if synchronous { Level::ExclusiveEffects } else { Level::AtLeastOnce };
        let spared = Spared { commits, ..Spared::default() };
        let report = report(found);
        FailedOver { synchronous, level, lost: commits, lost_before: 0, spared, report }.wrong()
    };
    assert_eq!(wrong(false, 1, &[]), Vec::<String>::new());
    assert_eq!(wrong(true, 0, &[]), Vec::<String>::new());
    assert_eq!(wrong(false, 1, &["L3"]), ["L3"]);
    assert_eq!(wrong(true, 0, &["L3"]), ["L3"]);
    assert_eq!(wrong(false, 0, &[]), ["nothing was lost, so the run proves nothing"]);
}

#[test]
fn believed_overlap_is_measured() {
    let stands = |epoch, at, until| InstanceRecord::Stands { under: under(epoch), at, until };
    let plain =
        |epoch, after| InstanceRecord::Plain { under: under(epoch), before: after - 1, after };
    // Extended once; then its deadline passes while the instance is stopped.
    let a = told("a", &[stands(1, 10, 40), stands(1, 30, 60), plain(1, 35), plain(1, 70)]);
    let b = told("b", &[stands(2, 50, 90), plain(2, 65), stands(2, 80, 0)]);
    let c = told("c", &[stands(3, 80, 99)]);
    let measured = Belief { overlap: 10, longest: 10, plain_late: 1, plain: 3 };
    assert_eq!(measure(&[a, b, c]), measured);
}

#[test]
fn lines_are_read_back() {
    let lines = [
        InstanceRecord::Hello { instance: "host-1-abc".to_owned() },
        InstanceRecord::Record {
            at: 5,
            change: "expired".to_owned(),
            under: Some(under(7)),
            reason: "a sentence with blanks".to_owned(),
        },
        InstanceRecord::Record {
            at: 5,
            change: "joined".to_owned(),
            under: None,
            reason: "start".to_owned(),
        },
        InstanceRecord::Stands { under: under(7), at: 3, until: 0 },
        InstanceRecord::Found { under: under(7), version: 9, instance: "a".to_owned(), event: 4 },
        saved(7, 4, 5, 9),
        commit(7, 4, 5, CommitResult::Unknown),
        commit(7, 4, 5, CommitResult::Held),
        commit(7, 4, 5, CommitResult::Unfenced),
        InstanceRecord::Plain { under: under(7), before: 1, after: 2 },
    ];
    for line in lines {
        assert_eq!(InstanceRecord::parse(&line.to_string()).unwrap(), line);
    }
    assert!(InstanceRecord::parse("commit 0 7 4 5").is_err());
    assert!(InstanceRecord::parse("nonsense").is_err());
}
