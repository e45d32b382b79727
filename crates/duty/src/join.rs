//! Joining a group.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::engine::{Layout, MemberSettings};
use tenure_core::store::MAX_BATCH;
use tenure_core::{
    BoxFuture, Clock, Code, DutyId, GroupName, Instance, Label, Store, StoreError, Targets, Ttl,
};

use crate::membership::Membership;
use crate::observe::{Observer, TracingObserver};
use crate::{driver, process};

/// Opens the store. It is called on the thread that renews, so that the connections belong to it,
/// and again while the store cannot be reached.
pub type Opener =
    Arc<dyn Fn() -> BoxFuture<'static, Result<Arc<dyn Store>, StoreError>> + Send + Sync>;

/// Makes an [`Opener`] of an async function.
pub fn opener<F, Fut>(open: F) -> Opener
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Arc<dyn Store>, StoreError>> + Send + 'static,
{
    Arc::new(move || Box::pin(open()))
}

/// Duties that the members of a group share.
#[derive(Clone, Debug)]
pub enum Duties {
    /// One duty: one member works, the others wait.
    Standby(DutyId),
    /// The duties `0` to `n - 1`.
    Shards(u32),
    /// Duties come and go with a list of targets.
    Targets {
        /// Source of the list.
        source: Arc<dyn Targets>,
        /// Interval between two reads.
        every: Duration,
    },
}

/// The wish to become a member of a group.
#[must_use = "nobody joins before `start`"]
pub struct Join {
    pub(crate) opener: Opener,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) duties: Duties,
    pub(crate) settings: MemberSettings,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) waits: bool,
}

impl std::fmt::Debug for Join {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Join").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Join {
    /// With the usual settings. `clock` counts suspended time, as `tenure::store::BootClock` does.
    pub fn new(
        opener: Opener,
        clock: Arc<dyn Clock>,
        group: GroupName,
        ttl: Ttl,
        duties: Duties,
    ) -> Self {
        let layout = match &duties {
            Duties::Standby(_) => Layout::Standby,
            Duties::Shards(count) => Layout::Shards(*count),
            Duties::Targets { .. } => Layout::Targets,
        };
        let settings = MemberSettings::new(group, process::instance().id().clone(), ttl, layout);
        let observer = Arc::new(TracingObserver);
        Self { opener, clock, duties, settings, observer, waits: true }
    }

    /// Its share beside the others: twice the weight, twice the duties. Zero takes nothing.
    pub fn weight(mut self, weight: u32) -> Self {
        self.settings.weight = weight;
        self
    }

    /// Sets the zone in which it runs: duties that prefer that zone move there first.
    pub fn zone(mut self, zone: Label) -> Self {
        self.settings.zone = Some(zone);
        self
    }

    /// A name that outlives this process, for pins.
    pub fn name(mut self, name: Label) -> Self {
        self.settings.name = Some(name);
        self
    }

    /// Sets the deployed revision: while members of two revisions live, duties move only because a
    /// member leaves.
    pub fn revision(mut self, revision: Label) -> Self {
        self.settings.revision = Some(revision);
        self
    }

    /// The most duties that this instance will hold: up to [`MAX_BATCH`], because one keep-alive
    /// names them all.
    pub fn room(mut self, room: usize) -> Self {
        self.settings.room = room;
        self
    }

    /// The most duties that the group may have.
    pub fn most_duties(mut self, most: usize) -> Self {
        self.settings.most_duties = most;
        self
    }

    /// Sets the time for work to end after it was asked to.
    pub fn drain(mut self, drain: Duration) -> Self {
        self.settings.drain = drain;
        self
    }

    /// Work that does not call [`crate::Guard::progress`] for so long is taken away.
    pub fn progress(mut self, progress: Duration) -> Self {
        self.settings.progress = Some(progress);
        self
    }

    /// Sets the observer, for logs and metrics. The default emits `tracing` events.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// Whether every confirmed keep-alive is recorded, not only what changes.
    pub fn record_renewals(mut self, record: bool) -> Self {
        self.settings.record_renewals = record;
        self
    }

    /// A store that cannot be reached is an error of [`Join::start`], instead of being tried again.
    pub fn no_wait(mut self) -> Self {
        self.waits = false;
        self
    }

    /// Joins as another instance than this process: for a process that plays several, as tests do.
    /// Who lends an identity to two members at a time has one of them refused.
    pub fn instance(mut self, instance: &Instance) -> Self {
        self.settings.instance = instance.id().clone();
        self
    }

    /// Joins. What waiting cannot cure (a bad URL, missing rights, settings that differ from the
    /// group's, a duplicate instance id) is an error. A store that cannot be reached is tried again
    /// in the background, and the membership that is returned begins when it answers; see
    /// [`Join::no_wait`].
    pub fn start(self) -> BoxFuture<'static, Result<Membership, StoreError>> {
        Box::pin(async move {
            self.check()?;
            driver::start(self).await
        })
    }

    fn check(&self) -> Result<(), StoreError> {
        let MemberSettings { most_duties: most, room, .. } = self.settings;
        let bad = match &self.duties {
            _ if room > MAX_BATCH => format!("room for {room} duties, the limit is {MAX_BATCH}"),
            Duties::Shards(0) => "a group of no shards".to_owned(),
            Duties::Shards(count) if *count as usize > most => {
                format!("{count} shards, the limit is {most}")
            }
            Duties::Targets { every, .. } if every.is_zero() => {
                "a list of targets that is read without a pause".to_owned()
            }
            _ => return Ok(()),
        };
        Err(StoreError::refused(Code::BadInput, bad))
    }
}
