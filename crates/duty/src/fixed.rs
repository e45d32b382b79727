//! Fixed partitions from the environment: no coordination, no store, the same events.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::engine::WorkOutcome;
use tenure_core::{
    Change, Clock, Code, DutyId, DutyKey, Epoch, GroupName, Hold, LocalInstant, Mark, Record,
    StoreError, Ttl,
};
use tokio::sync::mpsc;

use crate::driver::holds::{HoldKey, Holds};
use crate::driver::{nap, on_a_thread};
use crate::hold_state::{DriverCommand, DriverHandle};
use crate::membership::{EventQueue, Membership, MembershipEvent};
use crate::observe::Observer;
use crate::process;

const LIST_VARIABLE: &str = "CONNECTOR_PARTITIONS";
const ID_VARIABLE: &str = "CONNECTOR_PARTITION_ID";
const TOTAL_VARIABLE: &str = "CONNECTOR_TOTAL_PARTITIONS";

/// More numbers than this in one process are a mistake.
const MAX_PARTITIONS: usize = 10_000;

/// Shortest and longest rest of failed work; the same as in a group.
const REST_RANGE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The partitions of this process, as its deployment says.
///
/// Nothing watches over them: two processes with the same number both work on it, and nobody takes
/// over what a dead one had. The epoch is always [`Epoch::ZERO`], so no resource can tell an old
/// owner from a new one, and a guard is good until the membership is left. Where that matters, use
/// a group with a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partitions {
    ids: Vec<u32>,
}

impl Partitions {
    /// Reads `CONNECTOR_PARTITIONS`, `CONNECTOR_PARTITION_ID` and `CONNECTOR_TOTAL_PARTITIONS`.
    pub fn from_env() -> Result<Self, StoreError> {
        let read = |name: &str| match std::env::var(name) {
            Ok(value) => Ok(Some(value)),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => Err(bad(format!("{name} is not UTF-8"))),
        };
        let (list, id, total) = (read(LIST_VARIABLE)?, read(ID_VARIABLE)?, read(TOTAL_VARIABLE)?);
        Self::parse(list.as_deref(), id.as_deref(), total.as_deref())
    }

    /// The same from values: a list as in `0,1`, or one number and how many there are. Both may be
    /// there if they say the same.
    pub fn parse(
        list: Option<&str>,
        id: Option<&str>,
        total: Option<&str>,
    ) -> Result<Self, StoreError> {
        let total = total.map(|text| number(TOTAL_VARIABLE, text)).transpose()?;
        let listed = list.map(parse_list).transpose()?;
        let single = id.map(|text| number(ID_VARIABLE, text)).transpose()?;
        if single.is_some() && total.is_none() {
            return Err(bad(format!("{ID_VARIABLE} is set and {TOTAL_VARIABLE} is not")));
        }
        let ids = match (listed, single) {
            (None, None) if total.is_some() => {
                return Err(bad(format!(
                    "{TOTAL_VARIABLE} is set, and neither {ID_VARIABLE} nor {LIST_VARIABLE} is"
                )));
            }
            (None, None) => {
                return Err(bad(format!("neither {LIST_VARIABLE} nor {ID_VARIABLE} is set")));
            }
            (Some(ids), Some(id)) if ids != [id] => {
                return Err(bad(format!("{LIST_VARIABLE} is {ids:?} and {ID_VARIABLE} is {id}")));
            }
            (Some(ids), _) => ids,
            (None, Some(id)) => vec![id],
        };
        if let Some(total) = total
            && let Some(id) = ids.iter().find(|id| **id >= total)
        {
            return Err(bad(format!(
                "partition {id}, but {TOTAL_VARIABLE} is {total}: they count from 0"
            )));
        }
        Ok(Self { ids })
    }

    /// The numbers, sorted.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Returns the path of a partition's cursor beside `path`: `PATH.partition-ID`. The store
    /// `file:PATH` keeps the checkpoint of the duty `ID` there, too.
    pub fn cursor_path(path: &Path, id: u32) -> PathBuf {
        let mut name = OsString::from(path);
        name.push(format!(".partition-{id}"));
        name.into()
    }

    /// A membership that has each partition assigned at once, as the duties `group/ID`, until it is
    /// left or all work has ended. Work may take up to `drain` to come to its end.
    ///
    /// Work that fails is assigned again after a rest, which grows from a second to a minute: there
    /// is nobody else to do it. Work that ends by itself is done, and is not begun again. The
    /// observer is told both.
    pub fn join(
        &self,
        group: &GroupName,
        clock: Arc<dyn Clock>,
        drain: Duration,
        observer: Arc<dyn Observer>,
    ) -> Result<Membership, StoreError> {
        let (commands, orders) = mpsc::unbounded_channel();
        let desk = DriverHandle { commands, observer, store: Arc::default() };
        let inbox = Arc::new(EventQueue::default());
        let instance = process::instance().id().clone();
        let membership =
            Membership::new(Arc::clone(&inbox), desk.clone(), group.clone(), instance.clone());
        let mut parts = BTreeMap::new();
        let nonce = process::fresh_nonce();
        for id in &self.ids {
            let id = DutyId::new(id.to_string())?;
            let duty = DutyKey { group: group.clone(), id: id.clone() };
            let instance = instance.clone();
            let hold = Hold { duty, epoch: Epoch::ZERO, instance, nonce, mark: Mark::default() };
            parts.insert(id, FixedPartition::new(hold, clock.now()));
        }
        let holds = Holds {
            group: group.clone(),
            // Nothing expires. The longest there is, so that no margin is asked for in vain.
            ttl: Ttl::new(Ttl::MAX_TTL)?,
            progress: None,
            clock,
            desk,
            inbox,
            tenancies: BTreeMap::new(),
            changed: false,
        };
        let keeper = FixedDriver { holds, parts, drain, leaving: None };
        on_a_thread("tenure-fixed", move || keeper.run(orders))?;
        Ok(membership)
    }
}

/// A partition whose work has not come to its end.
struct FixedPartition {
    hold: Hold,
    /// When its work began, or is to begin.
    began: LocalInstant,
    /// The last rest; zero before the first.
    rest: Duration,
    /// When its work is to begin; `None` while it runs.
    begins: Option<LocalInstant>,
}

impl FixedPartition {
    fn new(hold: Hold, now: LocalInstant) -> Self {
        Self { hold, began: now, rest: Duration::ZERO, begins: Some(now) }
    }

    /// Its work failed: it rests, longer each time, unless it had worked for a good while.
    fn failed(&mut self, now: LocalInstant) {
        let (least, most) = REST_RANGE;
        let again = !self.rest.is_zero() && now.since(self.began) < most;
        self.rest = if again { (self.rest * 2).min(most) } else { least };
        self.begins = Some(now.plus(self.rest));
    }
}

/// Begins the work, begins it again when it fails, and waits for the end: of all work, or of the
/// time that it had to come to its end.
struct FixedDriver {
    holds: Holds,
    parts: BTreeMap<DutyId, FixedPartition>,
    drain: Duration,
    /// It was asked to end, and does so then at the latest.
    leaving: Option<LocalInstant>,
}

impl FixedDriver {
    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<DriverCommand>) {
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
                Some(order) = orders.recv() => self.ordered(order),
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
        self.holds.inbox.push(MembershipEvent::Ended(Ok(())));
        self.holds.end();
    }

    /// Begins the work on what is due.
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

    fn ordered(&mut self, order: DriverCommand) {
        match order {
            DriverCommand::Stopped { duty, epoch, how } => self.stopped(&(duty, epoch), how),
            DriverCommand::Leave | DriverCommand::Drain if self.leaving.is_none() => {
                self.leaving = Some(self.holds.clock.now().plus(self.drain));
                self.parts.retain(|_, part| part.begins.is_none());
                let keys: Vec<_> = self.holds.tenancies.keys().cloned().collect();
                keys.iter().for_each(|key| self.holds.drain(key, "leave"));
            }
            // Whatever a resource says, there is nobody to ask for another epoch: the guard that
            // was told so is lost, and its partition ends when it is dropped.
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
        let record = Record {
            at: self.holds.clock.now(),
            change,
            instance: hold.instance.clone(),
            duty: Some(hold.duty.id.clone()),
            epoch: Some(hold.epoch),
            other: None,
            reason: why.into(),
        };
        self.holds.desk.observer.recorded(&self.holds.group, &record, process::unix_ms());
    }
}

fn bad(detail: String) -> StoreError {
    StoreError::refused(Code::BadPartitions, detail)
}

fn number(name: &str, text: &str) -> Result<u32, StoreError> {
    // `u32` alone would take `+1`.
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(number) if digits => Ok(number),
        _ => Err(bad(format!("{name} has {:?}, which is no number", shortened(text)))),
    }
}

/// Enough of a text to recognise it by.
fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

fn parse_list(text: &str) -> Result<Vec<u32>, StoreError> {
    let parts = text.split(',').take(MAX_PARTITIONS + 1);
    let mut ids: Vec<_> =
        parts.map(|part| number(LIST_VARIABLE, part.trim())).collect::<Result<_, _>>()?;
    if ids.len() > MAX_PARTITIONS {
        return Err(bad(format!("{LIST_VARIABLE} has more than {MAX_PARTITIONS} partitions")));
    }
    ids.sort_unstable();
    if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(bad(format!("{LIST_VARIABLE} has {} twice", pair[0])));
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
