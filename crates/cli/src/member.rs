//! How a long-running command joins a group.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::guarantee::Level as Promise;
use tenure_core::{Code, GroupName, Label, Store, StoreError, Ttl};
use tenure_duty::observe::Observer;
use tenure_duty::{Duties, Join, Opener, opener, process};
use tenure_store::{BootClock, IfAbsent, StoreUrl};

use crate::args;
use crate::doctor;
use crate::failure::Failure;
use crate::observe::{self, Level, Note, Notes};

/// The longest time between TERM and KILL, unless it is asked for.
const GRACE: Duration = Duration::from_secs(5);

/// What a member brings along, read and checked.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) ttl: Ttl,
    pub(crate) grace: Duration,
    pub(crate) drain: Duration,
    require: Option<Promise>,
    zone: Option<Label>,
    name: Option<Label>,
    revision: Option<Label>,
    weight: u32,
    watch: observe::Options,
}

/// Those who watch a member.
pub(crate) struct Watchers {
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) handle: observe::Handle,
}

impl Settings {
    pub(crate) fn new(member: &args::Member) -> Result<Self, Failure> {
        let ttl = Ttl::new(member.ttl)?;
        let label = |text: &Option<String>| text.as_deref().map(Label::new).transpose();
        Ok(Self {
            ttl,
            grace: grace(ttl, member.grace)?,
            drain: member.drain.unwrap_or(ttl.get() / 2),
            require: member.require.as_deref().and_then(Promise::parse),
            zone: label(&member.zone)?,
            name: label(&member.name)?,
            revision: label(&member.revision)?,
            weight: member.weight,
            watch: member.watch.clone(),
        })
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
    ) -> Join {
        let open = open(store.clone(), self.require, watchers.handle.notes());
        let mut join = Join::new(open, Arc::new(BootClock), group, self.ttl, duties)
            .observer(Arc::clone(&watchers.observer))
            .weight(self.weight)
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
        join
    }
}

/// Between TERM and KILL the hold is not renewed into safety any more: a grace that reaches into
/// the time in which renewals are still due would end commands without need.
fn grace(ttl: Ttl, asked: Option<Duration>) -> Result<Duration, Failure> {
    match asked {
        Some(asked) if asked > ttl.get() / 4 => Err(Failure::Usage(format!(
            "--grace {asked:?} is more than a quarter of --ttl {:?}: take a longer TTL",
            ttl.get()
        ))),
        Some(asked) => Ok(asked),
        None => Ok(GRACE.min(ttl.get() / 6)),
    }
}

/// Opens the store, and refuses one that promises too little. While it cannot be reached this is
/// tried again; only the first time is it said.
fn open(url: StoreUrl, require: Option<Promise>, notes: Notes) -> Opener {
    let said = Arc::new(AtomicBool::new(false));
    opener(move || {
        let (url, said, notes) = (url.clone(), Arc::clone(&said), notes.clone());
        async move {
            let opened = opened(&url, require, &notes).await;
            if let Err(error) = &opened
                && error.code() == Code::Unreachable
                && !said.swap(true, Ordering::Relaxed)
            {
                let (problem, hint) = (error.problem(), error.code().hint());
                let reason = format!("{problem}; it is tried again; hint: {hint}");
                notes.say(Note { level: Level::Warn, event: "store_away", duty: None, reason });
            }
            opened
        }
    })
}

async fn opened(
    url: &StoreUrl,
    require: Option<Promise>,
    notes: &Notes,
) -> Result<Arc<dyn Store>, StoreError> {
    let store = url.open(IfAbsent::Create, process::entropy()).await?;
    let promise = doctor::level(&*store).await?;
    let reason = format!("{promise} (tenure doctor says why)");
    notes.say(Note { level: Level::Info, event: "guarantee", duty: None, reason });
    doctor::check(promise, require)?;
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
