//! A plan in a file: what it is for, what it was made from, and what would move.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::Context;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tenure_core::engine::MemberStatus;
use tenure_core::store::{Holder, Member};
use tenure_core::{Code, Epoch, GroupName, Nonce};

use super::changes::Changes;
use super::refused;
use super::state::State;
use crate::failure::Failure;
use crate::output::{document, shown};
use crate::replace::replace;

/// What a file begins with that this version can read.
const FORMAT: u64 = 2;
/// A plan of a hundred thousand moves has less.
const MOST_BYTES: u64 = 64 << 20;

/// What a plan was made from: three hashes, so that a difference has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Basis {
    members: String,
    holders: String,
    document: String,
}

fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().fold(String::new(), |mut hex, byte| {
        // Writing to a string does not fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// What is planned by of a member, and which session it is.
fn of_member(member: &Member) -> String {
    let nonce = member.nonce.map(Nonce::as_u128);
    // What it sees of the others changes by itself.
    let said = MemberStatus::read(&member.note).map(|said| MemberStatus { view: 0, ..said });
    format!("{} {nonce:?} {} {said:?}\n", member.instance, member.evicted)
}

fn of_holder(holder: &Holder) -> String {
    let instance = holder.holder.as_ref().map(|now| now.instance.to_string());
    format!("{} {:?} {instance:?}\n", holder.duty.id, holder.epoch.map(Epoch::get))
}

impl Basis {
    pub(super) fn of(state: &State) -> Self {
        Self {
            members: hash(&state.members.iter().map(of_member).collect::<String>()),
            holders: hash(&state.holders.iter().map(of_holder).collect::<String>()),
            document: hash(&format!("{} {:?}", state.version, state.group)),
        }
    }

    /// What is not as it was.
    pub(super) fn differences(&self, now: &Self) -> Vec<&'static str> {
        let pairs = [
            (&self.members, &now.members, "the members"),
            (&self.holders, &now.holders, "who holds what"),
            (&self.document, &now.document, "what operators have put in force"),
        ];
        pairs.into_iter().filter(|(was, is, _)| was != is).map(|(_, _, what)| what).collect()
    }

    fn value(&self) -> Value {
        json!({ "members": self.members, "holders": self.holders, "document": self.document })
    }

    fn of_value(value: &Value) -> Option<Self> {
        let text = |key: &str| value.get(key)?.as_str().map(str::to_owned);
        Some(Self {
            members: text("members")?,
            holders: text("holders")?,
            document: text("document")?,
        })
    }
}

/// A plan as it is kept.
#[derive(Debug)]
pub(super) struct PlanFile {
    pub(super) store: String,
    pub(super) group: GroupName,
    pub(super) changes: Changes,
    pub(super) basis: Basis,
    /// What would move, as it was shown.
    pub(super) moves: Value,
}

impl PlanFile {
    /// Replaces the file, whole or not at all.
    pub(super) fn write(&self, path: &Path) -> Result<(), Failure> {
        let mut value = json!({
            "tenure_plan": FORMAT,
            "store": self.store,
            "group": self.group.to_string(),
            "changes": self.changes.value(),
            "basis": self.basis.value(),
            "moves": self.moves,
        });
        value["checksum"] = hash(&value.to_string()).into();
        let written = replace(path, document(&value).as_bytes());
        written.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(())
    }

    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let read = || -> std::io::Result<Vec<u8>> {
            let mut bytes = Vec::new();
            File::open(path)?.take(MOST_BYTES).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let bad = |what: String| refused(Code::BadPlan, format!("{}: {what}", path.display()));
        let bytes = read().map_err(|error| bad(format!("it cannot be read: {error}")))?;
        let mut value: Value =
            serde_json::from_slice(&bytes).map_err(|_| bad("it is no plan".to_owned()))?;
        match value.get("tenure_plan").and_then(Value::as_u64) {
            Some(FORMAT) => {}
            Some(other) => {
                return Err(bad(format!("it has format {other}, this version has {FORMAT}")));
            }
            None => return Err(bad("it is no plan".to_owned())),
        }
        let said = value.as_object_mut().and_then(|all| all.remove("checksum"));
        if said.as_ref().and_then(Value::as_str) != Some(&hash(&value.to_string())) {
            return Err(bad("it was damaged or edited".to_owned()));
        }
        Self::of_value(&value).ok_or_else(|| bad("a part of it is missing".to_owned()))
    }

    fn of_value(value: &Value) -> Option<Self> {
        Some(Self {
            store: value.get("store")?.as_str()?.to_owned(),
            group: GroupName::unescape(value.get("group")?.as_str()?).ok()?,
            changes: Changes::of_value(value.get("changes")?)?,
            basis: Basis::of_value(value.get("basis")?)?,
            moves: value.get("moves")?.clone(),
        })
    }

    /// Refuses a plan that was made for another store.
    pub(super) fn check_store(&self, store: &str) -> Result<(), Failure> {
        if self.store == store {
            return Ok(());
        }
        let (theirs, this) = (shown(&self.store), shown(store));
        let what = format!("it was made for the store {theirs}, this one is {this}");
        Err(refused(Code::BadPlan, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_back_and_an_edited_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan");
        let (weights, pins) = (["a=3".to_owned()], ["d=a".to_owned()]);
        let group = GroupName::new("g").unwrap();
        let plan = PlanFile {
            store: "sqlite:x".to_owned(),
            changes: Changes::read(&group, &["n".to_owned()], &[], &weights, &pins).unwrap(),
            group,
            basis: Basis { members: "1".into(), holders: "2".into(), document: "3".into() },
            moves: json!([{ "duty": "d" }]),
        };
        plan.write(&path).unwrap();
        let read = PlanFile::read(&path).unwrap();
        assert_eq!((&read.changes, &read.basis), (&plan.changes, &plan.basis));
        assert_eq!((read.group, read.moves), (plan.group, plan.moves));
        let text = std::fs::read_to_string(&path).unwrap();
        for (bad, why) in [
            (text.replace("\"a\": 3", "\"a\": 4"), "damaged"),
            (text[..text.len() / 2].to_owned(), "no plan"),
            (text.replace("\"tenure_plan\": 2", "\"tenure_plan\": 1"), "it has format 1, this"),
        ] {
            assert_ne!(bad, text);
            std::fs::write(&path, bad).unwrap();
            let Err(Failure::Store(error)) = PlanFile::read(&path) else { panic!("{why}") };
            assert!(error.problem().detail.contains(why), "{error}");
        }
    }

    #[test]
    fn a_difference_has_a_name() {
        let basis = |m: &str, h: &str| Basis {
            members: m.into(),
            holders: h.into(),
            document: String::new(),
        };
        assert!(basis("1", "1").differences(&basis("1", "1")).is_empty());
        assert_eq!(basis("1", "1").differences(&basis("1", "2")), ["who holds what"]);
    }
}
