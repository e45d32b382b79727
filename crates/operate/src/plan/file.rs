//! Plan file: a plan with the state that it was made from.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenure_core::engine::MemberStatus;
use tenure_core::store::{Holder, Member};
use tenure_core::{Code, Epoch, GroupName, Nonce, Note, StoreError};

use super::changes::PlanChanges;
use crate::clock::sha256;
use crate::error::OperateError;
use crate::group::StoredGroup;
use crate::replace::replace;

/// Format number of the files that this version writes and reads.
const FORMAT: u64 = 2;
/// Upper bound of a file; a plan of a hundred thousand moves is smaller.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Hashes of the state that a plan was made from: one per part, so that errors can name the part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlanBasis {
    members: String,
    holders: String,
    document: String,
}

fn hash(content: impl AsRef<[u8]>) -> String {
    sha256(content.as_ref()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Describes a session, with the fields that the roster reads.
fn describe_member(member: &Member) -> String {
    let nonce = member.nonce.map(Nonce::as_u128);
    // A member's view changes without any action of an operator.
    let status = MemberStatus::read(&member.note).map(|status| MemberStatus { view: 0, ..status });
    let note = status.and_then(|status| status.note().ok());
    let note = note.as_ref().map(Note::as_str);
    format!("{} {nonce:?} {} {note:?}\n", member.instance, member.evicted)
}

fn describe_holder(holder: &Holder) -> String {
    let instance = holder.holder.as_ref().map(|now| now.instance.to_string());
    format!("{} {:?} {instance:?}\n", holder.duty.id, holder.epoch.map(Epoch::get))
}

impl PlanBasis {
    pub(super) fn of(group: &StoredGroup) -> Result<Self, StoreError> {
        let text = group.document.document()?;
        Ok(Self {
            members: hash(group.members.iter().map(describe_member).collect::<String>()),
            holders: hash(group.holders.iter().map(describe_holder).collect::<String>()),
            document: hash(format!("{} {}", group.version, hash(text.as_bytes()))),
        })
    }

    /// Parts that differ.
    pub(super) fn differences(&self, now: &Self) -> Vec<&'static str> {
        let pairs = [
            (&self.members, &now.members, "members"),
            (&self.holders, &now.holders, "holders"),
            (&self.document, &now.document, "directives of operators"),
        ];
        pairs.into_iter().filter(|(was, is, _)| was != is).map(|(_, _, what)| what).collect()
    }
}

/// A plan as it is stored in a file.
#[derive(Clone, Debug)]
pub struct PlanFile {
    /// Address of the store, without secrets.
    pub(crate) store: String,
    /// Name of the group.
    pub group: GroupName,
    /// Planned changes.
    pub changes: PlanChanges,
    pub(crate) basis: PlanBasis,
    /// Planned moves, as they were shown.
    pub(crate) moves: Value,
}

impl PlanFile {
    /// Replaces the file atomically.
    pub fn write(&self, path: &Path) -> Result<(), OperateError> {
        let mut value = json!({
            "tenure_plan": FORMAT,
            "store": self.store,
            "group": self.group.to_string(),
            "changes": self.changes,
            "basis": self.basis,
            "moves": self.moves,
        });
        value["checksum"] = hash(value.to_string()).into();
        replace(path, format!("{value:#}\n").as_bytes())
            .map_err(|source| OperateError::Write { path: path.to_owned(), source })
    }

    /// Reads a file and verifies its checksum.
    pub fn read(path: &Path) -> Result<Self, OperateError> {
        let bad = |what: &str| {
            OperateError::refused(Code::BadPlan, format!("{}: {what}", path.display()))
        };
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes))
            .map_err(|error| bad(&format!("it cannot be read: {error}")))?;
        let mut value: Value =
            serde_json::from_slice(&bytes).map_err(|_| bad("it is not a plan"))?;
        match value.get("tenure_plan").and_then(Value::as_u64) {
            Some(FORMAT) => {}
            Some(other) => {
                return Err(bad(&format!("it has format {other}, this version has {FORMAT}")));
            }
            None => return Err(bad("it is not a plan")),
        }
        let checksum = value.as_object_mut().and_then(|all| all.remove("checksum"));
        if checksum.as_ref().and_then(Value::as_str) != Some(&hash(value.to_string())) {
            return Err(bad("it was damaged or edited"));
        }
        Self::from_json(&value).ok_or_else(|| bad("a part of it is missing"))
    }

    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            store: value.get("store")?.as_str()?.to_owned(),
            group: GroupName::unescape(value.get("group")?.as_str()?).ok()?,
            changes: PlanChanges::from_json(value.get("changes")?)?,
            basis: PlanBasis::deserialize(value.get("basis")?).ok()?,
            moves: value.get("moves")?.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_back_and_an_edited_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan");
        let a = tenure_core::InstanceId::new("a").unwrap();
        let group = GroupName::new("g").unwrap();
        let plan = PlanFile {
            store: "sqlite:x".to_owned(),
            changes: PlanChanges {
                joins: [tenure_core::InstanceId::new("n").unwrap()].into(),
                weights: [(a.clone(), 3)].into(),
                pins: [(tenure_core::DutyId::new("d").unwrap(), a)].into(),
                ..PlanChanges::default()
            },
            group,
            basis: PlanBasis { members: "1".into(), holders: "2".into(), document: "3".into() },
            moves: json!([{ "duty": "d" }]),
        };
        plan.write(&path).unwrap();
        let read = PlanFile::read(&path).unwrap();
        assert_eq!((&read.changes, &read.basis), (&plan.changes, &plan.basis));
        assert_eq!((read.group, read.moves), (plan.group, plan.moves));
        let text = std::fs::read_to_string(&path).unwrap();
        for (bad, why) in [
            (text.replace("\"a\": 3", "\"a\": 4"), "damaged"),
            (text[..text.len() / 2].to_owned(), "not a plan"),
            (text.replace("\"tenure_plan\": 2", "\"tenure_plan\": 1"), "it has format 1, this"),
        ] {
            assert_ne!(bad, text);
            std::fs::write(&path, bad).unwrap();
            let error = PlanFile::read(&path).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn a_difference_has_a_name() {
        let basis = |m: &str, h: &str| PlanBasis {
            members: m.into(),
            holders: h.into(),
            document: String::new(),
        };
        assert!(basis("1", "1").differences(&basis("1", "1")).is_empty());
        assert_eq!(basis("1", "1").differences(&basis("1", "2")), ["holders"]);
    }
}
