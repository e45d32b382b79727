//! Settings of one member of a group.

use std::fmt;
use std::time::Duration;

use crate::{DutyId, GroupName, InstanceId, Label, StoreError, Ttl};

/// Naming scheme of a group's duties, the same for all its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// One duty: one member works, the others stand by.
    Standby,
    /// The duties `0` to `n - 1`.
    Shards(u32),
    /// Duties that come and go with a list of targets.
    Targets,
}

impl Layout {
    /// Returns the duty of shard `n`.
    pub fn shard(n: u32) -> Result<DutyId, StoreError> {
        DutyId::new(n.to_string())
    }

    /// Returns the number of a shard; `None` for any other name.
    pub fn shard_of(duty: &DutyId) -> Option<u32> {
        let n = duty.as_str().parse::<u32>().ok()?;
        (n.to_string() == duty.as_str()).then_some(n)
    }
}

/// Displays as `standby`, `shards:16` or `targets`.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standby => f.write_str("standby"),
            Self::Shards(count) => write!(f, "shards:{count}"),
            Self::Targets => f.write_str("targets"),
        }
    }
}

/// Settings of a member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MemberSettings {
    /// The group.
    pub group: GroupName,
    /// The instance.
    pub instance: InstanceId,
    /// Lease duration of the session.
    pub ttl: Ttl,
    /// Naming scheme of the duties.
    pub layout: Layout,
    /// Its share relative to other members.
    pub weight: u32,
    /// The zone in which it runs.
    pub zone: Option<Label>,
    /// A name that survives restarts of the process.
    pub name: Option<Label>,
    /// Whether the name gets a number while another member has it.
    pub numbered: bool,
    /// Deployed revision: while members run two revisions, duties move only when a member leaves.
    pub revision: Option<Label>,
    /// The most duties that it will hold.
    pub room: usize,
    /// Limit of duties in the group.
    pub max_duties: usize,
    /// Time for work to stop after it was asked to.
    pub drain: Duration,
    /// Time for which a duty stays after a move.
    pub window: Duration,
    /// The longest time between two looks at the group.
    pub look_every: Duration,
    /// Longest time for which a mixture of revisions holds back moves.
    pub rollout: Duration,
    /// Longest time between two progress reports of work; `None` for no limit.
    pub progress: Option<Duration>,
    /// Whether to record every confirmed hold, not only changes.
    pub record_renewals: bool,
}

impl MemberSettings {
    /// Default limit of duties per instance.
    pub const DEFAULT_ROOM: usize = 10_000;
    /// Default limit of duties per group.
    pub const DEFAULT_MAX_GROUP_DUTIES: usize = 100_000;

    /// Creates settings with defaults.
    pub fn new(group: GroupName, instance: InstanceId, ttl: Ttl, layout: Layout) -> Self {
        Self {
            group,
            instance,
            ttl,
            layout,
            weight: 1,
            zone: None,
            name: None,
            numbered: false,
            revision: None,
            room: Self::DEFAULT_ROOM,
            max_duties: Self::DEFAULT_MAX_GROUP_DUTIES,
            drain: ttl.get() / 2,
            window: ttl.get(),
            look_every: (ttl.get() / 3).min(Duration::from_secs(1)),
            rollout: Duration::from_secs(300),
            progress: None,
            record_renewals: false,
        }
    }
}
