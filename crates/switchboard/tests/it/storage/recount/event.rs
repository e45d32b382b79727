//! What may happen.

use proptest::prelude::*;

use super::{MESSAGES, PROCESSES, TARGETS};

#[derive(Clone, Debug)]
pub(super) enum Event {
    /// So many seconds pass; the store's clock may also be set back.
    Pass(i64),
    /// A process has done something, and says so.
    Beat { who: usize, done: i64, state: usize, fate: Fate },
    /// Something that was under way arrives.
    Arrive(usize),
    /// A process starts again, with a new id or with its old one.
    Restart { who: usize, same_id: bool },
    /// A counter of a process goes down.
    Reset { who: usize, counter: usize },
    /// The clock of a process is so far off, in seconds.
    Clock { who: usize, ahead: i64 },
    /// What there is is counted.
    Count { hold: Hold },
    /// A target says what became of a message.
    Report { message: usize, target: usize, acked: bool },
    /// What is old is taken away.
    Tidy,
    /// An operator puts a connector away or takes it back.
    Archive { who: usize, archived: bool },
    /// An operator removes a connector.
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

/// Events, whether old things are ever taken away, and whether clocks and counters only go on.
pub(super) fn histories() -> impl Strategy<Value = (Vec<Event>, bool, bool)> {
    (prop::collection::vec(event(), 40..120), any::<bool>(), any::<bool>())
}
