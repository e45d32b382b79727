//! Retention, forgetting duties and adopting a store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use redis::{Cmd, Value};
use tenure_core::store::{Adopt, Adopted, Forgotten, Retention};
use tenure_core::{Code, DutyId, DutyKey, Epoch, GroupName, Reason, StoreError, StoreResult};

use super::client::settle;
use super::foreign::{literally, scan};
use super::hold::holder_now;
use super::reply::RedisReply;
use super::script::{Script, command};
use super::{FLOORS_SCHEMA, MAX_SCRIPT_ITEMS, Redis, error};

impl Redis {
    pub(super) async fn duty_forget(
        &self,
        duties: &[DutyKey],
        reason: &Reason,
    ) -> StoreResult<Vec<Forgotten>> {
        // Each script call works on one group.
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
                let call = self.script(Script::DutyForget, incarnation, group);
                let call = call.arg(reason.as_str()).arg(FLOORS_SCHEMA);
                call.args(chunk.iter().map(|n| duties[*n].id.escaped()))
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

    fn forgotten(&self, reply: &mut RedisReply) -> StoreResult<Forgotten> {
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
            _ => Err(error::unexpected("unknown outcome code for forget")),
        }
    }

    pub(super) async fn store_retention(&self) -> StoreResult<Retention> {
        let reply = self.ask(&self.data, |incarnation| {
            Script::StoreRetention.call(1).arg(self.marker()).arg(incarnation)
        });
        let mut reply = reply.await?;
        let (slots, audit) = (reply.number()? as usize, reply.number()? as usize);
        self.history_slots.store(slots, Ordering::Relaxed);
        Ok(Retention { history_slots: slots, audit_kept: audit })
    }

    pub(super) async fn store_retain(&self, new: Retention) -> StoreResult<()> {
        let changed = self.call_one(&self.data, |incarnation| {
            let call = Script::StoreRetain.call(1).arg(self.marker()).arg(incarnation);
            call.arg("").arg(new.history_slots).arg(new.audit_kept)
        });
        changed.await?;
        self.history_slots.store(new.history_slots, Ordering::Relaxed);
        // The change has happened: history that is not trimmed now is trimmed by the next commit.
        self.trim_all().await.map_err(StoreError::or_happened)
    }

    async fn trim_all(&self) -> StoreResult<()> {
        for group in self.group_list().await? {
            let duties = self.ask(&self.data, |incarnation| {
                self.script(Script::GroupDuties, incarnation, &group)
            });
            let duties = duties.await?.texts()?;
            let trimmed = self.call_chunks(&self.data, &duties, |incarnation, chunk| {
                self.script(Script::HistoryTrim, incarnation, &group).args(chunk)
            });
            trimmed.await?;
        }
        Ok(())
    }

    /// Scans all keys first, because an index may be lost. Duties granted during the scan are in
    /// the indexes, which the script reads.
    pub(super) async fn store_adopt(&self, adopt: &Adopt) -> StoreResult<Adopted> {
        let found = StoreKeys::of(self.scan().await?);
        let newest = self.newest_epoch(&found).await?.max(adopt.floor);
        newest.max(Epoch::new(self.seen.load(Ordering::Relaxed))?).next()?;
        let incarnation = format!("{:032x}", adopt.entropy);
        let reply = self.ask(&self.data, |known| {
            let call = Script::StoreAdopt.call(2).arg(self.marker()).arg(self.groups_key());
            let call = call.arg(known).arg(&self.prefix).arg(&incarnation);
            let call = call.arg(newest.get().max(self.seen.load(Ordering::Relaxed)));
            let call = call.arg(found.groups.len()).args(&found.groups);
            call.args(found.sessions.iter().flat_map(|(head, instance)| [head, instance]))
        });
        let mut reply = reply.await?;
        let (sessions, floor) = (reply.number()?, Epoch::new(reply.number()?)?);
        self.saw(floor);
        *self.known() = Some(incarnation.as_str().into());
        Ok(Adopted { incarnation, sessions, duties: found.duties.len() as u64, floor })
    }

    /// Returns every key under the prefix that may belong to the store, without the prefix.
    async fn scan(&self) -> StoreResult<Vec<String>> {
        let mut found = Vec::new();
        scan(&self.data, &format!("{}*", literally(&self.prefix)), |key| {
            let rest = key.strip_prefix(&self.prefix);
            found.extend(rest.filter(|rest| may_be_ours(rest)).map(str::to_owned));
        })
        .await?;
        Ok(found)
    }

    /// Returns the newest epoch among the duties and floors found. Ignores keys with other content.
    async fn newest_epoch(&self, found: &StoreKeys) -> StoreResult<Epoch> {
        let mut newest = Epoch::ZERO;
        let mut commands: Vec<Cmd> = Vec::new();
        for head in &found.groups {
            commands.push(command(&["GET", &format!("{}{head}:floor", self.prefix)]));
        }
        for (group, id) in &found.duties {
            let root = format!("{}{group}:", self.prefix);
            commands.extend([
                command(&["GET", &format!("{root}fence:{id}")]),
                command(&["HGET", &format!("{root}checkpoint:{id}"), "epoch"]),
                command(&["LINDEX", &format!("{root}history:{id}"), "0"]),
            ]);
        }
        for chunk in commands.chunks(MAX_SCRIPT_ITEMS) {
            for answer in self.data.send(chunk).await? {
                let value = match answer {
                    Ok(value) => Some(value),
                    // The server's WRONGTYPE: no other refusal of a plain read has this code.
                    Err(error) if error.code() == Code::Damaged => None,
                    // An unread key is not an absent one: it may hold an epoch.
                    Err(error) => return Err(error),
                };
                newest = newest.max(value.as_ref().and_then(epoch_in).unwrap_or_default());
            }
        }
        Ok(newest)
    }
}

/// Parses the epoch of a fence, a floor or a checkpoint, or of an entry of the history, which
/// begins with `version epoch ...`.
fn epoch_in(value: &Value) -> Option<Epoch> {
    let Value::BulkString(bytes) = value else { return None };
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let first = words.next()?;
    Epoch::new(words.next().unwrap_or(first).parse().ok()?).ok()
}

/// Infixes between group and duty id in the keys of a duty.
const DUTY_KINDS: [&str; 3] = [":fence:", ":checkpoint:", ":history:"];
/// Suffixes of a group's other keys.
const GROUP_ENDS: [&str; 3] = [":grants", ":audit", ":floor"];
const SESSION_INFIX: &str = ":session:";

fn may_be_ours(rest: &str) -> bool {
    DUTY_KINDS.iter().any(|kind| rest.contains(kind))
        || GROUP_ENDS.iter().any(|end| rest.ends_with(end))
        || rest.contains(SESSION_INFIX)
}

/// Names found in keys, all parts escaped. A colon may belong to a name, so some keys can be split
/// in more than one way. Every split is taken, which is harmless: the epochs are only read, and the
/// script checks whether a session exists.
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
        // A number in a key that only looks like a fence does not count unless its group exists.
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

/// Returns every way to split a key into two names around `middle`.
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
