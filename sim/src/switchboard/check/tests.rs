//! Each violation is found by its own checker alone.

use tenure_switchboard::liveness::Liveness;
use tenure_switchboard::storage::{EventOutcome, InboxRetention, Measures, SeriesBucket, TokenEnd};
use uuid::Uuid;

use super::*;
use crate::switchboard::{HOUR, MINUTE, Micros, SECOND};

const KEEP: InboxRetention = InboxRetention { bodies: HOUR, keys: 2 * HOUR };
const WALL: i64 = 1_000 * HOUR;

fn found(history: &[SwitchStep]) -> Vec<&'static str> {
    judge(KEEP, history).iter().map(|finding| finding.checker).collect()
}

fn id(number: u64) -> Uuid {
    Uuid::from_u128(u128::from(number))
}

fn row(number: u64) -> (i64, Uuid) {
    (number as i64, id(number))
}

/// A submission of one new event.
fn new(number: u64) -> SentSubmission {
    let key = EventKey::Number(number);
    let event = SourceEvent { source: 0, key, payload: number, observed: 0 };
    let outcome = EventOutcome { request_id: id(number), duplicate: false, reused: false };
    SentSubmission {
        source: 0,
        token: None,
        hold: None,
        items: vec![(id(number), event)],
        fate: SubmissionFate::Stored(vec![Some(outcome)]),
    }
}

fn held(number: u64, epoch: u64, instance: u64) -> SentSubmission {
    SentSubmission { hold: Some(SentHold { duty: 0, epoch, instance }), ..new(number) }
}

fn fenced(sent: SentSubmission, by: (u64, u64)) -> SentSubmission {
    SentSubmission { fate: SubmissionFate::Fenced(Some(by)), ..sent }
}

fn at(at: Micros, sent: Vec<SentSubmission>) -> SwitchStep {
    SwitchStep::Committed { at, wall: WALL + at, sent, is_group: true }
}

/// Commits submissions one by one, and lets the observer see them.
fn commits(sent: Vec<SentSubmission>) -> Vec<SwitchStep> {
    let mut position = 0;
    let steps = sent.into_iter().flat_map(|sent| {
        let rows = new_events(&sent).map(|(id, _)| {
            position += 1;
            (position, id)
        });
        let rows = rows.collect();
        [at(0, vec![sent]), SwitchStep::Observed(rows)]
    });
    steps.collect()
}

fn page(after: i64, rows: &[(i64, Uuid)], trimmed: i64) -> SwitchStep {
    SwitchStep::Page(ReaderPage {
        after,
        tagged: after > 0,
        next: rows.last().map_or(after, |row| row.0),
        rows: rows.to_vec(),
        is_answered: true,
        at_end: true,
        trimmed,
        ..ReaderPage::default()
    })
}

fn with(mut history: Vec<SwitchStep>, more: Vec<SwitchStep>) -> Vec<SwitchStep> {
    history.extend(more);
    history
}

#[test]
fn a_sound_history_passes() {
    let lost = with(commits(vec![new(1)]), vec![SwitchStep::BackedUp, at(0, vec![new(2)])]);
    let restored = vec![
        SwitchStep::Observed(vec![row(2)]),
        page(0, &[row(1), row(2)], 0),
        SwitchStep::Restored(0),
        SwitchStep::Diverged { reader: 0 },
        page(0, &[row(1)], 0),
        SwitchStep::Adopted(10),
        at(0, vec![new(3)]),
        SwitchStep::Observed(vec![(11, id(3))]),
        page(1, &[(11, id(3))], 0),
    ];
    assert_eq!(found(&with(lost, restored)), [""; 0]);
    let repeated = EventOutcome { request_id: id(1), duplicate: true, reused: false };
    let again = SentSubmission {
        items: vec![(id(2), new(1).items[0].1)],
        fate: SubmissionFate::Stored(vec![Some(repeated)]),
        ..new(1)
    };
    let fence = vec![new(1), again, held(3, 5, 1), fenced(held(4, 4, 2), (5, 1)), held(5, 6, 2)];
    assert_eq!(found(&commits(fence)), [""; 0]);
    // What retention has deleted is told.
    let trimmed = vec![
        SwitchStep::Inventory { at: HOUR, stored_after: 1, rows: vec![row(2)], trimmed: 1 },
        page(0, &[row(2)], 1),
    ];
    let history = vec![
        at(0, vec![new(1)]),
        SwitchStep::Observed(vec![row(1)]),
        at(MINUTE, vec![new(2)]),
        SwitchStep::Observed(vec![row(2)]),
    ];
    assert_eq!(found(&with(history, trimmed)), [""; 0]);
}

#[test]
fn a_message_that_a_reader_misses_or_sees_twice() {
    let two = || commits(vec![new(1), new(2)]);
    assert_eq!(found(&with(two(), vec![page(0, &[row(1), row(2)], 0)])), [""; 0]);
    for rows in [vec![row(1)], vec![row(2)], vec![row(2), row(1)], vec![row(1), row(2), row(2)]] {
        assert_eq!(found(&with(two(), vec![page(0, &rows, 0)])), ["follow"], "{rows:?}");
    }
}

#[test]
fn a_cursor_from_a_lost_future() {
    let history = with(
        vec![SwitchStep::BackedUp],
        with(
            commits(vec![new(1)]),
            vec![page(0, &[row(1)], 0), SwitchStep::Restored(0), page(1, &[], 0)],
        ),
    );
    assert_eq!(found(&history), ["cursor"]);
    let sound = with(commits(vec![new(1)]), vec![page(0, &[row(1)], 0)]);
    assert_eq!(found(&with(sound, vec![SwitchStep::Diverged { reader: 0 }])), ["cursor"]);
}

#[test]
fn a_key_that_takes_effect_twice() {
    let again = SentSubmission { items: vec![(id(2), new(1).items[0].1)], ..new(2) };
    let history = |pruned: Micros| {
        let again = SwitchStep::Committed {
            at: pruned,
            wall: 0,
            sent: vec![again.clone()],
            is_group: true,
        };
        let steps = vec![SwitchStep::KeysPruned(pruned), again, SwitchStep::Observed(vec![row(2)])];
        with(commits(vec![new(1)]), steps)
    };
    assert_eq!(found(&history(MINUTE)), ["once"]);
    assert_eq!(found(&history(HOUR)), [""; 0]);
    // A repetition names the first, and tells whether the content is the same.
    for (first, reused) in [(7, false), (1, true)] {
        let outcome = EventOutcome { request_id: id(first), duplicate: true, reused };
        let fate = SubmissionFate::Stored(vec![Some(outcome)]);
        let again = SentSubmission { fate, ..again.clone() };
        assert_eq!(found(&commits(vec![new(1), again])), ["once"]);
    }
}

#[test]
fn a_hold_that_passes_after_a_newer_one() {
    let announce = SentSubmission {
        items: Vec::new(),
        fate: SubmissionFate::Stored(Vec::new()),
        ..held(1, 5, 1)
    };
    for (epoch, instance) in [(4, 1), (5, 2)] {
        let late = held(1, epoch, instance);
        assert_eq!(found(&commits(vec![announce.clone(), late])), ["fence"]);
    }
    assert_eq!(found(&commits(vec![announce.clone(), held(1, 5, 1)])), [""; 0]);
    // The newest hold of a group counts first.
    let group = vec![at(0, vec![held(1, 4, 1), announce]), SwitchStep::Observed(vec![row(1)])];
    assert_eq!(found(&group), ["fence"]);
    // Nobody has sent the hold that is named.
    assert_eq!(found(&commits(vec![fenced(held(1, 5, 1), (6, 1))])), ["fence"]);
}

#[test]
fn a_token_that_has_ended() {
    let sent = SentSubmission { token: Some(0), ..new(1) };
    let made = |expires_at| SwitchStep::TokenMade { token: 0, expires_at };
    let history = |steps: Vec<SwitchStep>, sent| with(steps, commits(vec![sent]));
    assert_eq!(found(&history(vec![made(WALL + 1)], sent.clone())), [""; 0]);
    assert_eq!(found(&history(vec![made(WALL)], sent.clone())), ["token"]);
    let revoked = vec![made(WALL + 1), SwitchStep::TokenRevoked(0)];
    assert_eq!(found(&history(revoked, sent.clone())), ["token"]);
    let refused = SentSubmission { fate: SubmissionFate::Ended(TokenEnd::Revoked), ..sent };
    assert_eq!(found(&history(vec![made(WALL + 1)], refused)), ["token"]);
}

#[test]
fn positions_with_a_gap_or_in_another_order() {
    let history =
        |rows: Vec<(i64, Uuid)>| vec![at(0, vec![new(1), new(2)]), SwitchStep::Observed(rows)];
    assert_eq!(found(&history(vec![row(1), row(2)])), [""; 0]);
    for rows in [vec![row(1), (3, id(2))], vec![(1, id(2)), (2, id(1))], vec![row(1)]] {
        assert_eq!(found(&history(rows)), ["positions"]);
    }
}

#[test]
fn a_message_that_is_deleted_too_early_or_never() {
    let inventory = |at, stored_after, rows, trimmed| {
        let seen = SwitchStep::Inventory { at, stored_after, rows, trimmed };
        found(&with(commits(vec![new(1), new(2)]), vec![seen]))
    };
    assert_eq!(inventory(HOUR, 0, vec![row(2)], 1), [""; 0]);
    assert_eq!(inventory(MINUTE, 0, vec![row(2)], 1), ["retention"]);
    assert_eq!(inventory(HOUR, 0, vec![row(2)], 0), ["retention"]);
    assert_eq!(inventory(HOUR, 1, vec![row(2)], 1), ["retention"]);
}

#[test]
fn a_clock_that_runs_too_fast_or_back() {
    let tick = |at: Micros, reached| SwitchStep::Ticked { at, turn: at, wall: reached, reached };
    let moved = |reached| found(&[tick(0, WALL), tick(MINUTE, reached)]);
    assert_eq!(moved(WALL + 2 * MINUTE), [""; 0]);
    assert_eq!(moved(WALL + 3 * MINUTE), ["clock"]);
    assert_eq!(moved(WALL - 1), ["clock"]);
    let behind = SwitchStep::Ticked { at: HOUR, turn: 2, wall: WALL + HOUR, reached: WALL };
    assert_eq!(found(&[tick(0, WALL), SwitchStep::ClocksRight, behind]), ["clock"]);
}

#[test]
fn a_connector_with_the_wrong_liveness() {
    let judged = |silent, beats, liveness| {
        found(&[SwitchStep::Judged { connector: 0, silent, beats, liveness }])
    };
    assert_eq!(judged(HOUR, false, Liveness::Offline), [""; 0]);
    assert_eq!(judged(HOUR, false, Liveness::Online), ["liveness"]);
    assert_eq!(judged(MINUTE, true, Liveness::Stale), ["liveness"]);
}

fn beat(done: i64, uptime_s: i64) -> SwitchStep {
    SwitchStep::Beat(SentBeat {
        wall: WALL,
        connector: 0,
        instance: 1,
        done,
        token: None,
        is_ended: false,
        received_at: WALL,
        late: false,
        uptime_s,
        sent_at: WALL + uptime_s * SECOND,
    })
}

fn rolled(epoch: u64, fenced: bool, sum: &[(usize, i64, i64)]) -> SwitchStep {
    let sums = [sum.to_vec(), sum.to_vec(), sum.to_vec()];
    SwitchStep::Rolled { wall: WALL, epoch, fenced, sums }
}

#[test]
fn a_heartbeat_that_is_counted_twice_or_not() {
    let beats = || vec![beat(4, 1), beat(10, 2)];
    let counted = |sum| found(&with(beats(), vec![rolled(1, false, &[(0, sum, 5)])]));
    assert_eq!(counted(10), [""; 0]);
    assert_eq!(counted(14), ["sums"]);
    assert_eq!(counted(4), ["sums"]);
    // The same heartbeat again is late.
    assert_eq!(found(&[beat(4, 1), beat(4, 1)]), ["sums"]);
    let bucket = |start| SeriesBucket {
        start,
        measures: Measures {
            messages_ingested: 10,
            messages_failed: 5,
            heartbeat_count: 2,
            ..Measures::default()
        },
    };
    let day = WALL - WALL % (24 * HOUR);
    let series = |hour: i64| {
        let (hours, days) = (vec![bucket(hour)], vec![bucket(day)]);
        let steps =
            vec![rolled(1, false, &[(0, 10, 5)]), SwitchStep::Series { connector: 0, hours, days }];
        found(&with(beats(), steps))
    };
    assert_eq!(series(WALL), [""; 0]);
    assert_eq!(series(WALL + HOUR), ["sums"]);
}

#[test]
fn counting_under_an_older_epoch() {
    let counted = |epoch, fenced| found(&[rolled(2, false, &[]), rolled(epoch, fenced, &[])]);
    assert_eq!(counted(1, true), [""; 0]);
    assert_eq!(counted(1, false), ["barrier"]);
    assert_eq!(counted(2, true), ["barrier"]);
}
