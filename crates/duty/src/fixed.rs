//! Fixed partitions from the environment: no coordination, no store, the same events.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::engine::{EngineEvent, WorkOutcome};
use tenure_core::{
    Change, Clock, Code, DutyId, DutyKey, Epoch, GroupName, Hold, LocalInstant, Mark, Record, Ttl,
};
use tokio::sync::mpsc;

use crate::driver::holds::{HoldKey, Holds};
use crate::driver::{nap, on_a_thread};
use crate::hold_state::DriverHandle;
use crate::membership::{EventQueue, Membership, MembershipEvent};
use crate::observe::Observer;
use crate::{DutyError, process};

const LIST_VARIABLE: &str = Partitions::LIST_VARIABLE;
const ID_VARIABLE: &str = Partitions::ID_VARIABLE;
const TOTAL_VARIABLE: &str = "CONNECTOR_TOTAL_PARTITIONS";

const MAX_PARTITIONS: usize = 10_000;

/// Shortest and longest pause before failed work is restarted, as in a group.
const REST_RANGE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Partitions of this process, as set by its deployment.
///
/// Nothing coordinates them: two processes with the same number both work on it, and no process
/// takes over from a dead one. The epoch is always [`Epoch::ZERO`], so no resource can tell an old
/// owner from a new one, and a guard is valid until the membership ends. Where that matters, use a
/// group with a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partitions {
    ids: Vec<u32>,
    total: Option<u32>,
}

impl Partitions {
    /// Variable with the list of partitions.
    pub const LIST_VARIABLE: &str = "CONNECTOR_PARTITIONS";
    /// Variable with the number of a single partition.
    pub const ID_VARIABLE: &str = "CONNECTOR_PARTITION_ID";

    /// Reads `CONNECTOR_PARTITIONS`, `CONNECTOR_PARTITION_ID` and `CONNECTOR_TOTAL_PARTITIONS`.
    pub fn from_env() -> Result<Self, DutyError> {
        let read = |name: &str| match std::env::var(name) {
            Ok(value) => Ok(Some(value)),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => Err(bad(format!("{name} is not UTF-8"))),
        };
        let (list, id, total) = (read(LIST_VARIABLE)?, read(ID_VARIABLE)?, read(TOTAL_VARIABLE)?);
        Self::parse(list.as_deref(), id.as_deref(), total.as_deref())
    }

    /// Reads the values of these variables: a list such as `0,1`, or one number and the total. Both
    /// may be given if they agree.
    pub fn parse(
        list: Option<&str>,
        id: Option<&str>,
        total: Option<&str>,
    ) -> Result<Self, DutyError> {
        let total = total.map(|text| number(TOTAL_VARIABLE, text)).transpose()?;
        let listed = list.map(parse_list).transpose()?;
        let single = id.map(|text| number(ID_VARIABLE, text)).transpose()?;
        let problem = match (&listed, single, total) {
            (_, Some(_), None) => format!("{ID_VARIABLE} is set and {TOTAL_VARIABLE} is not"),
            (None, None, Some(_)) => {
                format!("{TOTAL_VARIABLE} is set, and neither {ID_VARIABLE} nor {LIST_VARIABLE} is")
            }
            (None, None, None) => format!("neither {LIST_VARIABLE} nor {ID_VARIABLE} is set"),
            (Some(ids), Some(id), _) if *ids != [id] => {
                format!("{LIST_VARIABLE} is {ids:?} and {ID_VARIABLE} is {id}")
            }
            _ => {
                let ids = listed.unwrap_or_else(|| single.into_iter().collect());
                let outside = |id: &&u32| total.is_some_and(|total| **id >= total);
                match (ids.iter().find(outside), total) {
                    (Some(id), Some(total)) => format!(
                        "partition {id} is out of range: partitions count from 0, and \
                         {TOTAL_VARIABLE} is {total}"
                    ),
                    _ => return Ok(Self { ids, total }),
                }
            }
        };
        Err(bad(problem))
    }

    /// Returns the numbers, sorted.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Returns the number of partitions of all processes, if it is known.
    pub fn total(&self) -> Option<u32> {
        self.total
    }

    /// Returns the path of a partition's cursor beside `path`: `PATH.partition-ID`. The store
    /// `file:PATH` keeps the checkpoint of the duty `ID` there, too.
    pub fn cursor_path(path: &Path, id: impl std::fmt::Display) -> PathBuf {
        let mut name = OsString::from(path);
        name.push(format!(".partition-{id}"));
        name.into()
    }

    /// Starts a membership that is assigned every partition at once, as the duties `group/ID`. It
    /// lasts until it is left or all work has ended. Work may take up to `drain` to finish.
    ///
    /// Failed work is assigned again after a pause, which grows from a second to a minute. Work
    /// that ends by itself is not.
    pub fn join(
        &self,
        group: &GroupName,
        clock: Arc<dyn Clock>,
        drain: Duration,
        observer: Arc<dyn Observer>,
    ) -> Result<Membership, DutyError> {
        let (handle, commands) = DriverHandle::new(observer);
        let events = Arc::new(EventQueue::default());
        let instance = process::instance().id().clone();
        let membership =
            Membership::new(Arc::clone(&events), handle.clone(), group.clone(), instance.clone());
        let mut parts = BTreeMap::new();
        let nonce = process::fresh_nonce();
        for id in &self.ids {
            let id = DutyId::new(id.to_string())?;
            let duty = DutyKey { group: group.clone(), id: id.clone() };
            let instance = instance.clone();
            let hold = Hold { duty, epoch: Epoch::ZERO, instance, nonce, mark: Mark::default() };
            parts.insert(id, FixedPartition::new(hold, clock.now()));
        }
        // The longest TTL, because nothing expires.
        let ttl = Ttl::new(Ttl::MAX_TTL)?;
        let holds = Holds::new(group.clone(), ttl, None, clock, handle, events);
        let driver = FixedDriver { holds, parts, drain, leaving: None };
        on_a_thread("tenure-fixed", move || driver.run(commands))?;
        Ok(membership)
    }
}

/// A partition whose work has not finished.
struct FixedPartition {
    hold: Hold,
    /// Start of its work.
    began: LocalInstant,
    /// Last pause before a restart; zero before the first.
    rest: Duration,
    /// Next start of its work; `None` while it runs.
    begins: Option<LocalInstant>,
}

impl FixedPartition {
    fn new(hold: Hold, now: LocalInstant) -> Self {
        Self { hold, began: now, rest: Duration::ZERO, begins: Some(now) }
    }

    /// Schedules the next start. The pause doubles, unless the work ran for a minute.
    fn failed(&mut self, now: LocalInstant) {
        let (least, most) = REST_RANGE;
        let again = !self.rest.is_zero() && now.since(self.began) < most;
        self.rest = if again { (self.rest * 2).min(most) } else { least };
        self.begins = Some(now.plus(self.rest));
    }
}

/// Driver that starts the work, restarts it when it fails, and waits until all work has ended or
/// the drain time has passed.
struct FixedDriver {
    holds: Holds,
    parts: BTreeMap<DutyId, FixedPartition>,
    drain: Duration,
    /// End of the drain time, once the membership is leaving.
    leaving: Option<LocalInstant>,
}

impl FixedDriver {
    async fn run(mut self, mut commands: mpsc::UnboundedReceiver<EngineEvent>) {
        let clock = Arc::clone(&self.holds.clock);
        while !self.parts.is_empty() {
            let next = self.parts.values().filter_map(|part| part.begins).min();
            let wake = self.leaving.or(next);
            let due = async {
                match wake {
                    Some(at) => nap(&*clock, at, Duration::from_secs(1)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(command) = commands.recv() => self.commanded(command),
                () = due => match self.leaving {
                    Some(_) => break,
                    None => self.begin(),
                },
            }
            self.holds.report();
        }
        for part in self.parts.values() {
            self.record(Change::Revoked, &part.hold, "drain time is over");
        }
        self.holds.events.push(MembershipEvent::Ended(Ok(())));
        self.holds.end();
    }

    fn begin(&mut self) {
        let now = self.holds.clock.now();
        let mut begun = Vec::new();
        for part in self.parts.values_mut().filter(|part| part.begins.is_some_and(|at| at <= now)) {
            (part.begins, part.began) = (None, now);
            begun.push(part.hold.clone());
        }
        for hold in begun {
            self.record(Change::Acquired, &hold, "fixed");
            self.holds.assign(hold, LocalInstant::from_nanos(u64::MAX));
        }
    }

    fn commanded(&mut self, command: EngineEvent) {
        match command {
            EngineEvent::Stopped { duty, epoch, how } => self.stopped(&(duty, epoch), how),
            EngineEvent::Leave | EngineEvent::Drain if self.leaving.is_none() => {
                self.leaving = Some(self.holds.clock.now().plus(self.drain));
                self.parts.retain(|_, part| part.begins.is_none());
                self.holds.drain_all("leave");
            }
            // There are no other epochs: a guard that was fenced is lost, and its partition ends
            // when it is dropped.
            _ => {}
        }
    }

    fn stopped(&mut self, key: &HoldKey, how: WorkOutcome) {
        if !self.holds.stopped(key) {
            return;
        }
        let Some(mut part) = self.parts.remove(&key.0) else { return };
        let why = if how == WorkOutcome::Failed { "failed" } else { "done" };
        self.record(Change::Released, &part.hold, why);
        if how == WorkOutcome::Failed && self.leaving.is_none() {
            part.failed(self.holds.clock.now());
            self.parts.insert(key.0.clone(), part);
        }
    }

    fn record(&self, change: Change, hold: &Hold, why: &'static str) {
        self.holds.record(&Record {
            at: self.holds.clock.now(),
            change,
            instance: hold.instance.clone(),
            duty: Some(hold.duty.id.clone()),
            epoch: Some(hold.epoch),
            other: None,
            reason: why.into(),
        });
    }
}

fn bad(detail: String) -> DutyError {
    DutyError::refused(Code::BadPartitions, detail)
}

fn number(name: &str, text: &str) -> Result<u32, DutyError> {
    // `u32` alone would accept `+1`.
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(number) if digits => Ok(number),
        _ => {
            let start: String = text.chars().take(40).collect();
            Err(bad(format!("{name} contains {start:?}, which is not a number")))
        }
    }
}

fn parse_list(text: &str) -> Result<Vec<u32>, DutyError> {
    let parts = text.split(',').take(MAX_PARTITIONS + 1);
    let mut ids: Vec<_> =
        parts.map(|part| number(LIST_VARIABLE, part.trim())).collect::<Result<_, _>>()?;
    if ids.len() > MAX_PARTITIONS {
        return Err(bad(format!("{LIST_VARIABLE} has more than {MAX_PARTITIONS} partitions")));
    }
    ids.sort_unstable();
    if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(bad(format!("{LIST_VARIABLE} lists {} twice", pair[0])));
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(list: Option<&str>, id: Option<&str>, total: Option<&str>) -> Vec<u32> {
        Partitions::parse(list, id, total).unwrap().ids().to_vec()
    }

    #[test]
    fn both_forms_are_read_and_may_agree() {
        assert_eq!(ids(Some("1, 0"), None, None), [0, 1]);
        assert_eq!(ids(None, Some("2"), Some("3")), [2]);
        assert_eq!(ids(Some("2"), Some("2"), Some("3")), [2]);
        assert_eq!(ids(Some("0,2"), None, Some("3")), [0, 2]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_named() {
        for (list, id, total, named) in [
            (None, None, None, "neither"),
            (None, None, Some("3"), "TOTAL_PARTITIONS is set"),
            (None, Some("1"), None, "TOTAL_PARTITIONS is not"),
            (None, Some("3"), Some("3"), "partition 3"),
            (Some("0,3"), None, Some("3"), "partition 3"),
            (Some(""), None, None, "\"\""),
            (Some("0,,1"), None, None, "\"\""),
            (Some("0,1,0"), None, None, "0 twice"),
            (Some("one"), None, None, "one"),
            (Some("-1"), None, None, "-1"),
            (Some("+1"), None, None, "+1"),
            (Some("4294967296"), None, None, "4294967296"),
            (Some("0,1"), Some("1"), Some("2"), "[0, 1]"),
            (Some("0"), Some("1"), Some("2"), "[0]"),
            (None, Some(""), Some("3"), "\"\""),
            (None, Some("0"), Some("0"), "partition 0"),
        ] {
            let error = Partitions::parse(list, id, total).unwrap_err();
            assert_eq!(error.code(), Code::BadPartitions);
            assert!(error.to_string().contains(named), "{error}");
        }
    }

    #[test]
    fn rests_grow_to_a_minute_and_start_over_after_a_good_while() {
        let at = |seconds: u64| LocalInstant::from_nanos(seconds * 1_000_000_000);
        let hold = Hold {
            duty: DutyKey::new("g", "0").unwrap(),
            epoch: Epoch::ZERO,
            instance: process::instance().id().clone(),
            nonce: process::fresh_nonce(),
            mark: Mark::default(),
        };
        let mut part = FixedPartition::new(hold, at(0));
        for rest in [1, 2, 4, 8, 16, 32, 60, 60] {
            part.began = at(1_000);
            part.failed(at(1_059));
            assert_eq!(part.begins, Some(at(1_059 + rest)));
        }
        part.failed(at(1_060));
        assert_eq!(part.begins, Some(at(1_061)));
    }

    #[test]
    fn a_cursor_lies_beside_its_path() {
        let path = Partitions::cursor_path(Path::new("data/cursor.json"), 3);
        assert_eq!(path, Path::new("data/cursor.json.partition-3"));
    }
}
