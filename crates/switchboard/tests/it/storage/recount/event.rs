//! Random events.

use proptest::prelude::*;

use super::{MESSAGES, PROCESSES, TARGETS};

#[derive(Clone, Debug)]
pub(super) enum Event {
    /// Seconds that pass; negative if the store's clock is set back.
    Pass(i64),
    /// A process does some work and sends a heartbeat.
    Beat { who: usize, done: i64, state: usize, fate: Fate },
    /// A delayed heartbeat arrives.
    Arrive(usize),
    /// A process restarts, with a new id or with its old one.
    Restart { who: usize, same_id: bool },
    /// A counter of a process goes down.
    Reset { who: usize, counter: usize },
    /// The clock of a process is off by this many seconds.
    Clock { who: usize, ahead: i64 },
    /// A step of counting.
    Count { hold: Hold },
    /// A target reports the outcome of a message.
    Report { message: usize, target: usize, acked: bool },
    /// Retention runs.
    Tidy,
    /// An operator archives or restores a connector.
    Archive { who: usize, archived: bool },
    /// An operator deletes a connector.
    Delete { who: usize },
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    Arrives,
    ArrivesTwice,
    IsLost,
    IsUnderWay,
    /// The history cannot be written.
    IsUnwritten,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Hold {
    Same,
    Newer,
    Older,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        12 => Just(Fate::Arrives),
        1 => Just(Fate::ArrivesTwice),
        1 => Just(Fate::IsLost),
        3 => Just(Fate::IsUnderWay),
        1 => Just(Fate::IsUnwritten),
    ]
}

fn hold() -> impl Strategy<Value = Hold> {
    prop_oneof![6 => Just(Hold::Same), 2 => Just(Hold::Newer), 1 => Just(Hold::Older)]
}

fn event() -> impl Strategy<Value = Event> {
    let who = 0..PROCESSES;
    let beat = (who.clone(), 0..50_i64, 0..6_usize, fate())
        .prop_map(|(who, done, state, fate)| Event::Beat { who, done, state, fate });
    let seconds = prop_oneof![
        8 => 0..300_i64,
        4 => 300..7_200_i64,
        2 => 7_200..100_000_i64,
        1 => 100_000..3_000_000_i64,
        1 => -900..0_i64,
    ];
    let restart =
        (who.clone(), any::<bool>()).prop_map(|(who, same_id)| Event::Restart { who, same_id });
    let reset = (who.clone(), 0..5_usize).prop_map(|(who, counter)| Event::Reset { who, counter });
    let ahead = prop_oneof![Just(0), -400..400_i64, Just(400 * 86_400), Just(-400 * 86_400)];
    let clock = (who.clone(), ahead).prop_map(|(who, ahead)| Event::Clock { who, ahead });
    let count = hold().prop_map(|hold| Event::Count { hold });
    let report = (0..MESSAGES, 0..TARGETS.len(), any::<bool>())
        .prop_map(|(message, target, acked)| Event::Report { message, target, acked });
    let archive =
        (who.clone(), any::<bool>()).prop_map(|(who, archived)| Event::Archive { who, archived });
    prop_oneof![
        30 => beat,
        14 => seconds.prop_map(Event::Pass),
        6 => any::<usize>().prop_map(Event::Arrive),
        2 => restart,
        1 => reset,
        1 => clock,
        5 => count,
        3 => report,
        2 => Just(Event::Tidy),
        1 => archive,
        1 => who.prop_map(|who| Event::Delete { who }),
    ]
}

/// Generates events, whether retention runs, and whether clocks and counters only increase.
pub(super) fn histories() -> impl Strategy<Value = (Vec<Event>, bool, bool)> {
    (prop::collection::vec(event(), 40..120), any::<bool>(), any::<bool>())
}
