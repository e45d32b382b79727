//! Retention, forgetting duties and adopting a store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use redis::{Cmd, Value};
use tenure_core::store::{Adopt, Adopted, Forgotten, Retention, check};
use tenure_core::{Code, DutyId, DutyKey, Epoch, GroupName, Reason, StoreError};

use super::client::settle;
use super::foreign::literally;
use super::hold::holder_now;
use super::reply::RedisReply;
use super::script::Script;
use super::{FLOORS_SCHEMA, MAX_SCRIPT_ITEMS, Redis, error};

/// Keys that the server visits in one step.
const SCAN_COUNT: usize = 1_000;

impl Redis {
    pub(super) async fn duty_forget(
        &self,
        duties: &[DutyKey],
        reason: &Reason,
    ) -> Result<Vec<Forgotten>, StoreError> {
        check::forget(duties)?;
        // A script works on one group.
        let mut by_group: BTreeMap<&GroupName, Vec<usize>> = BTreeMap::new();
        for (n, duty) in duties.iter().enumerate() {
            by_group.entry(&duty.group).or_default().push(n);
        }
        let chunks = by_group.iter().flat_map(|(group, items)| {
            items.chunks(MAX_SCRIPT_ITEMS).map(move |chunk| (*group, chunk))
        });
        let chunks: Vec<(&GroupName, &[usize])> = chunks.collect();
        let answers = self.call(&self.data, |incarnation| {
            let commands = chunks.iter().map(|(group, chunk)| {
                let mut command = self.script(Script::DutyForget, incarnation, group);
                command.arg(reason.as_str()).arg(FLOORS_SCHEMA);
                for n in *chunk {
                    command.arg(&*duties[*n].id.escaped());
                }
                command
            });
            commands.collect()
        });
        let mut forgotten = vec![Forgotten::Absent; duties.len()];
        for (value, (_, chunk)) in settle(answers.await?)?.into_iter().zip(&chunks) {
            let mut reply = RedisReply::of(value)?;
            for n in *chunk {
                forgotten[*n] = self.forgotten(&mut reply)?;
            }
        }
        Ok(forgotten)
    }

    fn forgotten(&self, reply: &mut RedisReply) -> Result<Forgotten, StoreError> {
        match reply.number()? {
            1 => {
                let floor = Epoch::new(reply.number()?)?;
                reply.number()?;
                self.saw(floor);
                Ok(Forgotten::Forgotten { floor })
            }
            2 => {
                let (holder, remaining) = (reply.bytes()?, reply.remaining()?);
                Ok(Forgotten::HeldBy(holder_now(holder, remaining)))
            }
            3 => {
                reply.number()?;
                reply.number()?;
                Ok(Forgotten::Absent)
            }
            _ => Err(error::unexpected("no outcome of a forgetting")),
        }
    }

    pub(super) async fn store_retention(&self) -> Result<Retention, StoreError> {
        let reply = self.call_one(&self.data, |incarnation| {
            let mut command = Script::StoreRetention.call(1);
            command.arg(self.marker()).arg(incarnation);
            command
        });
        let mut reply = RedisReply::of(reply.await?)?;
        let (slots, audit) = (reply.number()? as usize, reply.number()? as usize);
        self.history_slots.store(slots, Ordering::Relaxed);
        Ok(Retention { history_slots: slots, audit_kept: audit })
    }

    pub(super) async fn store_retain(&self, retention: Retention) -> Result<(), StoreError> {
        let new = retention.check()?;
        let changed = self.call_one(&self.data, |incarnation| {
            let mut command = Script::StoreRetain.call(1);
            command.arg(self.marker()).arg(incarnation).arg("");
            command.arg(new.history_slots).arg(new.audit_kept);
            command
        });
        changed.await?;
        self.history_slots.store(new.history_slots, Ordering::Relaxed);
        // From here on it has happened: what is not cut now is cut by the next commit.
        self.trim_all().await.map_err(StoreError::or_happened)
    }

    async fn trim_all(&self) -> Result<(), StoreError> {
        for group in self.group_list().await? {
            let duties = self.call_one(&self.data, |incarnation| {
                self.script(Script::GroupDuties, incarnation, &group)
            });
            let ids = RedisReply::of(duties.await?)?.texts()?;
            let trimmed = self.call(&self.data, |incarnation| {
                let commands = ids.chunks(MAX_SCRIPT_ITEMS).map(|chunk| {
                    let mut command = self.script(Script::HistoryTrim, incarnation, &group);
                    command.arg(chunk);
                    command
                });
                commands.collect()
            });
            settle(trimmed.await?)?;
        }
        Ok(())
    }

    /// Looks through all keys first, because an index may be lost; what is granted meanwhile is in
    /// the indexes, which the script reads.
    pub(super) async fn store_adopt(&self, adopt: &Adopt) -> Result<Adopted, StoreError> {
        check::adopt(adopt)?;
        let found = StoreKeys::of(self.scan().await?);
        let newest = self.newest_epoch(&found).await?.max(adopt.floor);
        newest.max(Epoch::new(self.seen.load(Ordering::Relaxed))?).next()?;
        let incarnation = format!("{:032x}", adopt.entropy);
        let reply = self.call_one(&self.data, |known| {
            let mut command = Script::StoreAdopt.call(2);
            command.arg(self.marker()).arg(self.groups_key());
            command.arg(known).arg(&self.prefix).arg(&incarnation);
            command.arg(newest.get().max(self.seen.load(Ordering::Relaxed)));
            command.arg(found.groups.len());
            for group in &found.groups {
                command.arg(group);
            }
            for (head, instance) in &found.sessions {
                command.arg(head).arg(instance);
            }
            command
        });
        let mut reply = RedisReply::of(reply.await?)?;
        let (sessions, floor) = (reply.number()?, Epoch::new(reply.number()?)?);
        self.saw(floor);
        *self.known() = Some(incarnation.as_str().into());
        Ok(Adopted { incarnation, sessions, duties: found.duties.len() as u64, floor })
    }

    /// Every key under the prefix that may be ours, without the prefix.
    async fn scan(&self) -> Result<Vec<String>, StoreError> {
        let pattern = format!("{}*", literally(&self.prefix));
        let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
        loop {
            let mut command = redis::cmd("SCAN");
            command.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCAN_COUNT);
            let reply = settle(self.data.send(&[command]).await?)?;
            let mut reply = RedisReply::of(Value::Array(reply))?.list()?;
            cursor = reply.text()?;
            let mut keys = reply.list()?;
            while !keys.is_done() {
                // A key that is no text is none that we would write.
                let key = String::from_utf8(keys.bytes()?).ok();
                let rest = key.as_deref().and_then(|key| key.strip_prefix(&self.prefix));
                found.extend(rest.filter(|rest| may_be_ours(rest)).map(str::to_owned));
            }
            if cursor == "0" {
                return Ok(found);
            }
        }
    }

    /// The newest epoch of the duties and floors that were found. A key that holds something else
    /// tells nothing.
    async fn newest_epoch(&self, found: &StoreKeys) -> Result<Epoch, StoreError> {
        let mut newest = Epoch::ZERO;
        let mut commands: Vec<Cmd> = Vec::new();
        for head in &found.groups {
            let mut command = redis::cmd("GET");
            command.arg(format!("{}{head}:floor", self.prefix));
            commands.push(command);
        }
        for (group, id) in &found.duties {
            let root = format!("{}{group}:", self.prefix);
            let mut fence = redis::cmd("GET");
            fence.arg(format!("{root}fence:{id}"));
            let mut checkpoint = redis::cmd("HGET");
            checkpoint.arg(format!("{root}checkpoint:{id}")).arg("epoch");
            let mut history = redis::cmd("LINDEX");
            history.arg(format!("{root}history:{id}")).arg(0);
            commands.extend([fence, checkpoint, history]);
        }
        for chunk in commands.chunks(MAX_SCRIPT_ITEMS) {
            for answer in self.data.send(chunk).await? {
                let value = match answer {
                    Ok(value) => Some(value),
                    // The server's WRONGTYPE: no other refusal of a plain read has this code.
                    Err(error) if error.code() == Code::Damaged => None,
                    // Not read is not absent: an epoch may be there.
                    Err(error) => return Err(error),
                };
                newest = newest.max(value.as_ref().and_then(epoch_in).unwrap_or_default());
            }
        }
        Ok(newest)
    }
}

/// An epoch as a fence, a floor or a checkpoint has it, or as an entry of the history begins:
/// `version epoch ...`.
fn epoch_in(value: &Value) -> Option<Epoch> {
    let Value::BulkString(bytes) = value else { return None };
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let first = words.next()?;
    Epoch::new(words.next().unwrap_or(first).parse().ok()?).ok()
}

/// Infixes between group and id in the keys of a duty.
const DUTY_KINDS: [&str; 3] = [":fence:", ":checkpoint:", ":history:"];
/// Suffixes of a group's other keys.
const GROUP_ENDS: [&str; 3] = [":grants", ":audit", ":floor"];
const SESSION_INFIX: &str = ":session:";

fn may_be_ours(rest: &str) -> bool {
    DUTY_KINDS.iter().any(|kind| rest.contains(kind))
        || GROUP_ENDS.iter().any(|end| rest.ends_with(end))
        || rest.contains(SESSION_INFIX)
}

/// Names found in keys, all parts escaped. A colon may belong to a name, so a key may be
/// read in more than one way; every way is taken, because nothing is done that hangs on it: epochs
/// are read, and the script looks whether a session is one.
#[derive(Debug, Default)]
struct StoreKeys {
    groups: BTreeSet<String>,
    duties: BTreeSet<(String, String)>,
    /// `<group>:` and the instance.
    sessions: Vec<(String, String)>,
}

impl StoreKeys {
    fn of(keys: Vec<String>) -> Self {
        let mut found = Self::default();
        for key in &keys {
            for end in GROUP_ENDS {
                found
                    .groups
                    .extend(key.strip_suffix(end).filter(|it| is_group(it)).map(str::to_owned));
            }
            for (group, id) in splits(key, ":checkpoint:") {
                if is_group(group) && DutyId::unescape(id).is_ok() {
                    found.groups.insert(group.to_owned());
                }
            }
            for (group, instance) in splits(key, SESSION_INFIX).filter(|(group, _)| is_group(group))
            {
                found.sessions.push((format!("{group}:"), instance.to_owned()));
            }
        }
        // A number at a name that only looks like a fence is none of ours without a group.
        for key in &keys {
            for (group, id) in DUTY_KINDS.iter().flat_map(|kind| splits(key, kind)) {
                if found.groups.contains(group) && DutyId::unescape(id).is_ok() {
                    found.duties.insert((group.to_owned(), id.to_owned()));
                }
            }
        }
        found
    }
}

fn is_group(part: &str) -> bool {
    GroupName::unescape(part).is_ok_and(|group| *group.escaped() == *part)
}

/// Every way to read a key as two names with `middle` between them.
fn splits<'a>(key: &'a str, middle: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let places =
        (0..key.len()).filter(move |at| key.get(*at..).is_some_and(|it| it.starts_with(middle)));
    places.map(move |at| (&key[..at], &key[at + middle.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_in_every_way() {
        let keys = ["a:grants", "a:fence:x", "b:fence:y", "c:checkpoint:fence:z", "a:session:i:1"];
        let found = StoreKeys::of(keys.map(str::to_owned).to_vec());
        assert_eq!(found.groups.iter().collect::<Vec<_>>(), ["a", "c"]);
        let duty = |group: &str, id: &str| (group.to_owned(), id.to_owned());
        assert_eq!(found.duties, BTreeSet::from([duty("a", "x"), duty("c", "fence:z")]));
        assert_eq!(found.sessions, [duty("a:", "i:1")]);
    }

    #[test]
    fn an_epoch_is_found_in_each_kind_of_value() {
        let epoch = |text: &str| epoch_in(&Value::BulkString(text.into())).map(Epoch::get);
        assert_eq!(epoch("17"), Some(17));
        assert_eq!(epoch("3 18 1700000000000 1\nadoc\n9 9"), Some(18));
        assert_eq!(epoch("text"), None);
        assert_eq!(epoch(""), None);
    }
}
