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
use crate::{DutyError, driver, process};

/// Opens the store. Called on the thread that renews, which owns the connections, and again while
/// the store cannot be reached.
pub type Opener =
    Arc<dyn Fn() -> BoxFuture<'static, Result<Arc<dyn Store>, StoreError>> + Send + Sync>;

/// Creates an [`Opener`] from an async function.
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
    /// Duties from a list of targets, which may change.
    Targets {
        /// Source of the list.
        source: Arc<dyn Targets>,
        /// Interval between two reads.
        every: Duration,
    },
}

/// Settings with which a process joins a group.
#[must_use = "nothing happens before `start`"]
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
    /// Default settings. `clock` counts suspended time, as `tenure::store::BootClock` does.
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
        Self { opener, clock, duties, settings, observer: Arc::new(TracingObserver), waits: true }
    }

    /// Share of the duties: twice the weight, twice the duties. Zero takes nothing.
    pub fn weight(mut self, weight: u32) -> Self {
        self.settings.weight = weight;
        self
    }

    /// Zone in which this instance runs: duties that prefer the zone move there first.
    pub fn zone(mut self, zone: impl Into<Option<Label>>) -> Self {
        self.settings.zone = zone.into();
        self
    }

    /// Name that survives restarts of this process, for pins.
    pub fn name(mut self, name: impl Into<Option<Label>>) -> Self {
        self.settings.name = name.into();
        self
    }

    /// Name that gets a number while another member has it: `web`, then `web_2`. For the name of a
    /// host or a pod, on which several members may run.
    pub fn numbered_name(mut self, name: impl Into<Option<Label>>) -> Self {
        self.settings.numbered = true;
        self.name(name)
    }

    /// Deployed revision: while members of two revisions live, duties move only because a member
    /// leaves.
    pub fn revision(mut self, revision: impl Into<Option<Label>>) -> Self {
        self.settings.revision = revision.into();
        self
    }

    /// Limit on the duties of this instance: up to [`MAX_BATCH`], because one keep-alive names them
    /// all.
    pub fn room(mut self, room: usize) -> Self {
        self.settings.room = room;
        self
    }

    /// Limit on the duties of the group.
    pub fn max_duties(mut self, most: usize) -> Self {
        self.settings.max_duties = most;
        self
    }

    /// Time for work to end after it was asked to end.
    pub fn drain(mut self, drain: Duration) -> Self {
        self.settings.drain = drain;
        self
    }

    /// Longest time between two calls of [`crate::Guard::progress`]; after that the hold is
    /// revoked.
    pub fn progress(mut self, progress: Duration) -> Self {
        self.settings.progress = Some(progress);
        self
    }

    /// Observer, for logs and metrics. The default emits `tracing` events.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// Whether every confirmed keep-alive is recorded.
    pub fn record_renewals(mut self, record: bool) -> Self {
        self.settings.record_renewals = record;
        self
    }

    /// Makes [`Join::start`] fail when the store cannot be reached, instead of retrying.
    pub fn no_wait(mut self) -> Self {
        self.waits = false;
        self
    }

    /// Joins as another instance than this process, for tests. Two members at a time cannot use the
    /// same instance: the second one is refused.
    pub fn instance(mut self, instance: &Instance) -> Self {
        self.settings.instance = instance.id().clone();
        self
    }

    /// Joins. Returns only errors that are permanent: a bad URL, missing rights, settings that
    /// differ from the group's, a duplicate instance id. An unreachable store is retried in the
    /// background, and the membership begins when it responds; see [`Join::no_wait`].
    pub fn start(self) -> BoxFuture<'static, Result<Membership, DutyError>> {
        Box::pin(async move {
            self.check()?;
            driver::start(self).await
        })
    }

    fn check(&self) -> Result<(), DutyError> {
        let MemberSettings { max_duties: most, room, .. } = self.settings;
        let bad = match &self.duties {
            _ if room > MAX_BATCH => format!("room for {room} duties, the limit is {MAX_BATCH}"),
            Duties::Shards(0) => "a group needs at least one shard".to_owned(),
            Duties::Shards(count) if *count as usize > most => {
                format!("{count} shards, the limit is {most}")
            }
            Duties::Targets { every, .. } if every.is_zero() => {
                "the interval between reads of the target list is zero".to_owned()
            }
            _ => return Ok(()),
        };
        Err(DutyError::refused(Code::BadInput, bad))
    }
}
