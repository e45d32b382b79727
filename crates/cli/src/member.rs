//! How a long-running command joins a group.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use tenure_core::guarantee::Level as Promise;
use tenure_core::text::span;
use tenure_core::{Code, GroupName, Label, Store, StoreError, Ttl};
use tenure_duty::observe::Observer;
use tenure_duty::{Duties, Join, Membership, Opener, opener, process};
use tenure_store::{BootClock, IfAbsent, StoreUrl};
use tokio::time::timeout;

use crate::args;
use crate::doctor;
use crate::failure::Failure;
use crate::guard::reap_all;
use crate::observe::{self, Level, Note, Notes};
use crate::signals::Signals;
use crate::signing;

/// The longest time between TERM and KILL, unless it is asked for.
const GRACE: Duration = Duration::from_secs(5);

/// How long a start may still take when this process is asked to end.
const MOMENT: Duration = Duration::from_secs(1);

/// The shortest TTL: in less, a command could not be ended with certainty when its guard fails.
const SHORTEST: Duration = Duration::from_secs(1);
/// The longest time that work may take to end.
const LONGEST_DRAIN: Duration = Duration::from_secs(24 * 60 * 60);

/// What a member brings along, read and checked.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) ttl: Ttl,
    pub(crate) grace: Duration,
    pub(crate) drain: Duration,
    pub(crate) isolate: bool,
    require: Option<Promise>,
    zone: Option<Label>,
    name: Option<Label>,
    revision: Option<Label>,
    weight: u32,
    signing: Arc<signing::Settings>,
    watch: observe::Options,
}

/// Those who watch a member.
pub(crate) struct Watchers {
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) handle: observe::Handle,
}

impl Settings {
    pub(crate) fn new(member: &args::Member) -> Result<Self, Failure> {
        if member.ttl < SHORTEST {
            return Err(Failure::Usage(format!(
                "--ttl {} is too short to end a command in time: the least is {}",
                span(member.ttl),
                span(SHORTEST)
            )));
        }
        let ttl = Ttl::new(member.ttl)?;
        if let Some(drain) = member.drain {
            within("--drain", drain, Duration::ZERO, LONGEST_DRAIN)?;
        }
        let label = |text: &Option<String>| {
            text.as_deref().map(|text| args::name(text, Label::unescape)).transpose()
        };
        Ok(Self {
            ttl,
            grace: grace(ttl, member.grace)?,
            drain: member.drain.unwrap_or(ttl.get() / 2),
            isolate: member.isolate,
            require: member.require.as_deref().and_then(Promise::parse),
            zone: label(&member.zone)?,
            name: label(&member.name)?,
            revision: label(&member.revision)?,
            weight: member.weight,
            signing: Arc::new(signing::Settings::new(&member.signing)?),
            watch: member.watch.clone(),
        })
    }

    /// Leaves out of the log what is less than this, unless more was asked for than is usual.
    pub(crate) fn log_only(&mut self, level: Level) {
        if self.watch.log_level == Level::Info {
            self.watch.log_level = level;
        }
    }

    /// Starts the log, and the server if there is to be one.
    pub(crate) fn watch(&self, group: &GroupName) -> Result<Watchers, Failure> {
        let about = observe::About {
            instance: process::instance().id().clone(),
            group: group.clone(),
            ttl: self.ttl,
            clock: Arc::new(BootClock),
        };
        let (observer, handle) = observe::start(&self.watch, about)?;
        if let Some(address) = handle.address() {
            handle.notes().say(Note {
                level: Level::Info,
                event: "listening",
                duty: None,
                reason: format!("/health and /metrics on {address}"),
            });
        }
        Ok(Watchers { observer, handle })
    }

    /// The wish to join, on a store that is made if it is not there.
    pub(crate) fn join(
        &self,
        store: &StoreUrl,
        group: GroupName,
        duties: Duties,
        watchers: &Watchers,
        waits: bool,
    ) -> Join {
        let reason = place(store);
        let notes = watchers.handle.notes();
        notes.say(Note { level: Level::Info, event: "store", duty: None, reason });
        let place = Place {
            url: store.clone(),
            signing: Arc::clone(&self.signing),
            require: self.require,
            notes,
        };
        let open = open(place, waits);
        let mut join = Join::new(open, Arc::new(BootClock), group, self.ttl, duties)
            .observer(Arc::clone(&watchers.observer))
            .weight(self.weight)
            .record_renewals(self.watch.log_level == Level::Debug)
            .drain(self.drain);
        if let Some(zone) = &self.zone {
            join = join.zone(zone.clone());
        }
        if let Some(name) = &self.name {
            join = join.name(name.clone());
        }
        if let Some(revision) = &self.revision {
            join = join.revision(revision.clone());
        }
        if waits { join } else { join.no_wait() }
    }
}

/// A store, and whether other hosts can use it.
pub(crate) fn place(store: &StoreUrl) -> String {
    let local = ": this host only; for several hosts name one that they share (--store)";
    format!("{store}{}", if store.is_local() { local } else { "" })
}

/// How a start came to its end.
pub(crate) enum Started {
    Member(Membership),
    /// This signal asks to end.
    Asked(Signal),
}

/// Joins, which may take long while the store does not answer, unless a signal that `ends` comes.
pub(crate) async fn start(
    join: Join,
    signals: &mut Signals,
    ends: impl Fn(Signal) -> bool,
) -> Result<Started, StoreError> {
    let mut start = std::pin::pin!(join.start());
    let signal = loop {
        tokio::select! {
            biased;
            signal = signals.next() => match signal {
                Signal::CHILD => reap_all(),
                signal if ends(signal) => break signal,
                _ => {}
            },
            started = &mut start => return started.map(Started::Member),
        }
    };
    // What has just begun is better given back than left to the TTL.
    if let Ok(Ok(membership)) = timeout(MOMENT, start).await {
        let _ = membership.leave().await;
    }
    Ok(Started::Asked(signal))
}

/// Something that an option takes, as it is typed.
pub(crate) trait Written {
    fn written(&self) -> String;
}

impl Written for Duration {
    fn written(&self) -> String {
        span(*self)
    }
}

macro_rules! written {
    ($($number:ty)*) => {
        $(impl Written for $number {
            fn written(&self) -> String {
                self.to_string()
            }
        })*
    };
}

written! { u32 u64 usize }

/// Refuses what is outside of its limits.
pub(crate) fn within<T: PartialOrd + Written>(
    option: &str,
    value: T,
    least: T,
    most: T,
) -> Result<T, Failure> {
    if value < least || value > most {
        let (value, least, most) = (value.written(), least.written(), most.written());
        let what = format!("{option} {value} is outside the limits: {least} to {most}");
        return Err(Failure::Usage(what));
    }
    Ok(value)
}

/// Between TERM and KILL the hold is not renewed into safety any more: a grace that reaches into
/// the time in which renewals are still due would end commands without need.
fn grace(ttl: Ttl, asked: Option<Duration>) -> Result<Duration, Failure> {
    match asked {
        Some(asked) if asked > ttl.get() / 4 => Err(Failure::Usage(format!(
            "--grace {} is more than a quarter of --ttl {}: take a longer TTL",
            span(asked),
            span(ttl.get())
        ))),
        Some(asked) => Ok(asked),
        None => Ok(GRACE.min(ttl.get() / 6)),
    }
}

/// A store, and what is asked of it.
#[derive(Clone)]
struct Place {
    url: StoreUrl,
    signing: Arc<signing::Settings>,
    require: Option<Promise>,
    notes: Notes,
}

/// Opens the store, and refuses one that promises too little. While it cannot be reached this is
/// tried again; only the first time is it said.
fn open(place: Place, waits: bool) -> Opener {
    let said = Arc::new(AtomicBool::new(false));
    opener(move || {
        let (place, said) = (place.clone(), Arc::clone(&said));
        async move {
            let opened = opened(&place).await;
            if let Err(error) = &opened
                && error.code() == Code::Unreachable
                // Who does not wait ends with the same words.
                && waits
                && !said.swap(true, Ordering::Relaxed)
            {
                let (problem, hint) = (error.problem(), error.code().hint());
                let reason = format!("{problem}; it is tried again; hint: {hint}");
                let note = Note { level: Level::Warn, event: "store_away", duty: None, reason };
                place.notes.say(note);
            }
            opened
        }
    })
}

async fn opened(place: &Place) -> Result<Arc<dyn Store>, StoreError> {
    let Place { url, signing, require, notes } = place;
    let signing = signing.signing()?;
    let store = url.open_signed(IfAbsent::Create, process::entropy(), signing).await?;
    let promise = doctor::level(&*store).await?;
    let reason = format!("{promise} (tenure doctor says why)");
    notes.say(Note { level: Level::Info, event: "guarantee", duty: None, reason });
    doctor::check(promise, *require)?;
    Ok(store)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grace_leaves_room_for_renewals() {
        let ttl = |seconds| Ttl::new(Duration::from_secs(seconds)).unwrap();
        assert_eq!(grace(ttl(30), None).unwrap(), Duration::from_secs(5));
        assert_eq!(grace(ttl(6), None).unwrap(), Duration::from_secs(1));
        assert_eq!(grace(ttl(60), Some(Duration::ZERO)).unwrap(), Duration::ZERO);
        assert!(grace(ttl(30), Some(Duration::from_secs(7))).is_ok());
        assert!(matches!(grace(ttl(30), Some(Duration::from_secs(8))), Err(Failure::Usage(_))));
    }
}
