//! Each violation is found by its own checker alone.

use tenure_switchboard::liveness::Liveness;
use tenure_switchboard::storage::{EventOutcome, InboxRetention, Measures, SeriesBucket, TokenEnd};
use uuid::Uuid;

use super::*;
use crate::switchboard::{DAY, HOUR, MINUTE, Micros, SECOND};

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

fn committed(at: Micros, sent: Vec<SentSubmission>) -> SwitchStep {
    SwitchStep::Committed { wall: WALL + at, sent }
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
        [committed(0, vec![sent]), SwitchStep::Observed(rows)]
    });
    steps.collect()
}

/// The clock of retention has reached the store's clock.
fn ticked(at: Micros) -> SwitchStep {
    SwitchStep::Ticked { at, turn: at, wall: WALL + at, reached: WALL + at }
}

fn pruned(keys: u64, rows: &[(i64, Uuid)], trimmed: i64) -> SwitchStep {
    SwitchStep::Pruned { keys, rows: rows.to_vec(), trimmed }
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

/// Two messages; the second arrives a minute after the first.
fn a_minute_apart() -> Vec<SwitchStep> {
    let second = vec![committed(MINUTE, vec![new(2)]), SwitchStep::Observed(vec![row(2)])];
    with(commits(vec![new(1)]), second)
}

fn with(mut history: Vec<SwitchStep>, more: Vec<SwitchStep>) -> Vec<SwitchStep> {
    history.extend(more);
    history
}

#[test]
fn a_sound_history_passes() {
    let lost = with(commits(vec![new(1)]), vec![SwitchStep::BackedUp, committed(0, vec![new(2)])]);
    let restored = vec![
        SwitchStep::Observed(vec![row(2)]),
        page(0, &[row(1), row(2)], 0),
        SwitchStep::Restored(0),
        SwitchStep::Diverged { reader: 0 },
        page(0, &[row(1)], 0),
        SwitchStep::Adopted { wall: WALL, floor: 10 },
        committed(0, vec![new(3)]),
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
    let trimmed = vec![ticked(HOUR + SECOND), pruned(0, &[row(2)], 1), page(0, &[row(2)], 1)];
    assert_eq!(found(&with(a_minute_apart(), trimmed)), [""; 0]);
}

#[test]
fn a_message_that_a_reader_misses_or_sees_twice() {
    let two = || commits(vec![new(1), new(2)]);
    assert_eq!(found(&with(two(), vec![page(0, &[row(1), row(2)], 0)])), [""; 0]);
    for rows in [vec![row(1)], vec![row(2)], vec![row(2), row(1)], vec![row(1), row(2), row(2)]] {
        assert_eq!(found(&with(two(), vec![page(0, &rows, 0)])), ["follow"], "{rows:?}");
    }
    let SwitchStep::Page(all) = page(0, &[row(1), row(2)], 0) else { unreachable!() };
    let again = SwitchStep::Page(ReaderPage { next: 1, ..all });
    assert_eq!(found(&with(two(), vec![again])), ["follow"]);
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
    let history = |now: Micros, keys, rows: &[(i64, Uuid)]| {
        let trimmed = 1 - rows.len() as i64;
        let again = committed(now, vec![again.clone()]);
        let again = vec![again, SwitchStep::Observed(vec![row(2)])];
        let pruned = vec![ticked(now), pruned(keys, rows, trimmed)];
        found(&with(with(commits(vec![new(1)]), pruned), again))
    };
    assert_eq!(history(MINUTE, 0, &[row(1)]), ["once"]);
    assert_eq!(history(2 * HOUR + SECOND, 1, &[]), [""; 0]);
    assert_eq!(history(2 * HOUR + SECOND, 0, &[]), ["once"]);
    // Content is known for an hour after it was first observed.
    let content = |number, hour| {
        let key = EventKey::Content(1, hour);
        let event = SourceEvent { source: 0, key, payload: 1, observed: hour * HOUR };
        SentSubmission { items: vec![(id(number), event)], ..new(number) }
    };
    assert_eq!(found(&commits(vec![content(1, 1), content(2, 2)])), [""; 0]);
    let mut soon = content(2, 2);
    soon.items[0].1.observed -= 1;
    assert_eq!(found(&commits(vec![content(1, 1), soon])), ["once"]);
    // A repetition names the first, and tells whether the content is the same.
    for (first, reused) in [(7, false), (1, true)] {
        let outcome = EventOutcome { request_id: id(first), duplicate: true, reused };
        let fate = SubmissionFate::Stored(vec![Some(outcome)]);
        let again = SentSubmission { fate, ..again.clone() };
        assert_eq!(found(&commits(vec![new(1), again])), ["once"]);
    }
}

#[test]
fn an_event_that_is_refused_or_fails_without_a_reason() {
    let refused = SentSubmission { fate: SubmissionFate::Stored(vec![None]), ..new(2) };
    let failed = SentSubmission { fate: SubmissionFate::Failed(String::new()), ..new(2) };
    for sent in [&refused, &failed] {
        let history = |id| {
            let sent = SentSubmission { items: vec![(id, new(2).items[0].1)], ..sent.clone() };
            found(&commits(vec![new(1), sent]))
        };
        // Another event has this id.
        assert_eq!(history(id(1)), [""; 0]);
        assert_eq!(history(id(2)), ["content"]);
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
    let group = vec![
        committed(0, vec![held(1, 4, 1), announce.clone()]),
        SwitchStep::Observed(vec![row(1)]),
    ];
    assert_eq!(found(&group), ["fence"]);
    // A hold without a token is of every source, and is not revealed to this one.
    let of_source = |told| SentSubmission {
        token: Some(0),
        fate: SubmissionFate::Fenced(told),
        ..held(1, 4, 1)
    };
    let fenced_by_all = |told| {
        let made = SwitchStep::TokenMade { token: 0, expires_at: WALL + 1 };
        found(&with(vec![made], commits(vec![announce.clone(), of_source(told)])))
    };
    assert_eq!(fenced_by_all(None), [""; 0]);
    assert_eq!(fenced_by_all(Some((5, 1))), ["fence"]);
    // Nobody has sent the hold that is named, or nothing was stored under it.
    assert_eq!(found(&commits(vec![fenced(held(1, 5, 1), (6, 1))])), ["fence"]);
    let refused = SentSubmission {
        items: vec![(id(1), new(2).items[0].1)],
        fate: SubmissionFate::Stored(vec![None]),
        ..held(2, 6, 1)
    };
    assert_eq!(found(&commits(vec![new(1), refused, fenced(held(3, 5, 1), (6, 1))])), ["fence"]);
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
    assert_eq!(found(&history(Vec::new(), sent.clone())), ["token"]);
    let refused = SentSubmission { fate: SubmissionFate::Ended(TokenEnd::Revoked), ..sent };
    assert_eq!(found(&history(vec![made(WALL + 1)], refused)), ["token"]);
    assert_eq!(found(&[answered(1, BeatAnswer::TooMany)]), ["token"]);
    assert_eq!(found(&[answered(1, BeatAnswer::Ended(TokenEnd::Gone))]), ["token"]);
}

#[test]
fn positions_with_a_gap_or_in_another_order() {
    let history = |rows: Vec<(i64, Uuid)>| {
        vec![committed(0, vec![new(1), new(2)]), SwitchStep::Observed(rows)]
    };
    assert_eq!(found(&history(vec![row(1), row(2)])), [""; 0]);
    for rows in [vec![row(1), (3, id(2))], vec![(1, id(2)), (2, id(1))], vec![row(1)]] {
        assert_eq!(found(&history(rows)), ["positions"]);
    }
}

#[test]
fn an_adoption_below_what_a_lost_future_used() {
    let adopted_at = |wall, floor| {
        let lost = with(vec![SwitchStep::BackedUp], commits(vec![new(1), new(2)]));
        let adopted = SwitchStep::Adopted { wall, floor };
        found(&with(lost, vec![SwitchStep::Restored(0), adopted]))
    };
    assert_eq!(adopted_at(WALL, 3), [""; 0]);
    assert_eq!(adopted_at(WALL, 2), ["positions"]);
    assert_eq!(adopted_at(0, 2), ["positions"]);
}

#[test]
fn a_message_that_is_deleted_too_early_or_never() {
    let deleted = |now, rows: &[(i64, Uuid)], trimmed| {
        found(&with(a_minute_apart(), vec![ticked(now), pruned(0, rows, trimmed)]))
    };
    let now = HOUR + SECOND;
    assert_eq!(deleted(now, &[row(2)], 1), [""; 0]);
    assert_eq!(deleted(MINUTE, &[row(2)], 1), ["retention"]);
    assert_eq!(deleted(now, &[], 2), ["retention"]);
    // It stays, is gone without notice, or is told to be gone.
    assert_eq!(deleted(now, &[row(1), row(2)], 0), ["retention"]);
    assert_eq!(deleted(now, &[row(2)], 0), ["retention"]);
    assert_eq!(deleted(now, &[row(2)], 2), ["retention"]);
    assert_eq!(deleted(now, &[row(1), row(2)], 1), ["retention"]);
    // A page tells the same.
    let told = vec![page(0, &[row(1), row(2)], 1)];
    assert_eq!(found(&with(a_minute_apart(), told)), ["retention"]);
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
    let listed = |at, sending: &[usize], shown: &[(usize, bool, Liveness)]| {
        let connectors = shown.iter().map(|(connector, is_archived, liveness)| ListedConnector {
            connector: *connector,
            is_archived: *is_archived,
            liveness: *liveness,
        });
        let connectors = connectors.collect();
        found(&[beat(4, 1), SwitchStep::Listed { at, sending: sending.to_vec(), connectors }])
    };
    assert_eq!(listed(MINUTE, &[0], &[(0, false, Liveness::Online)]), [""; 0]);
    assert_eq!(listed(MINUTE, &[0], &[(0, false, Liveness::Stale)]), ["liveness"]);
    assert_eq!(listed(HOUR, &[], &[(0, false, Liveness::Offline)]), [""; 0]);
    assert_eq!(listed(HOUR, &[], &[(0, false, Liveness::Online)]), ["liveness"]);
    assert_eq!(listed(HOUR, &[], &[(0, true, Liveness::Offline)]), ["liveness"]);
    assert_eq!(listed(HOUR, &[], &[]), ["liveness"]);
}

/// A heartbeat with this uptime, as it was answered.
fn answered(uptime_s: i64, answer: BeatAnswer) -> SwitchStep {
    SwitchStep::Beat(SentBeat {
        at: 0,
        wall: WALL,
        connector: 0,
        instance: 1,
        done: 0,
        token: None,
        uptime_s,
        sent_at: WALL + uptime_s * SECOND,
        answer,
    })
}

fn beat(done: i64, uptime_s: i64) -> SwitchStep {
    let answer = BeatAnswer::Accepted { received_at: WALL, late: false };
    let SwitchStep::Beat(beat) = answered(uptime_s, answer) else { unreachable!() };
    SwitchStep::Beat(SentBeat { done, ..beat })
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
    let day = WALL - WALL % DAY;
    let series = |hour: i64, counters| {
        let (hours, days) = (vec![bucket(hour)], vec![bucket(day)]);
        let series = SwitchStep::Series { connector: 0, counters, hours, days };
        found(&with(beats(), vec![rolled(1, false, &[(0, 10, 5)]), series]))
    };
    assert_eq!(series(WALL, Some([10, 5])), [""; 0]);
    assert_eq!(series(WALL + HOUR, Some([10, 5])), ["sums"]);
    assert_eq!(series(WALL, Some([14, 7])), ["sums"]);
    assert_eq!(series(WALL, None), ["sums"]);
}

#[test]
fn history_that_is_deleted_uncounted_or_too_early() {
    let deleted = |now, is_counted, deleted| {
        let pruned = SwitchStep::HistoryPruned { keep: DAY, deleted };
        let mut steps = vec![beat(10, 1)];
        if is_counted {
            steps.push(rolled(1, false, &[(0, 10, 5)]));
        }
        found(&with(steps, vec![ticked(now), pruned]))
    };
    assert_eq!(deleted(3 * DAY, true, 1), [""; 0]);
    assert_eq!(deleted(3 * DAY, true, 0), ["sums"]);
    assert_eq!(deleted(3 * DAY, false, 1), ["sums"]);
    assert_eq!(deleted(HOUR, true, 1), ["sums"]);
}

#[test]
fn counting_under_an_older_epoch() {
    let counted = |epoch, fenced| found(&[rolled(2, false, &[]), rolled(epoch, fenced, &[])]);
    let counted_all_the_same =
        vec![rolled(2, false, &[]), beat(10, 1), rolled(1, true, &[(0, 10, 5)])];
    assert_eq!(found(&counted_all_the_same), ["sums"]);
    assert_eq!(counted(1, true), [""; 0]);
    assert_eq!(counted(1, false), ["barrier"]);
    assert_eq!(counted(2, true), ["barrier"]);
}
