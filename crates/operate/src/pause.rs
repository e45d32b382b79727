//! Pause and resume: stops work on a duty or a whole group.

use serde::Serialize;
use tenure_core::engine::GroupConfig;
use tenure_core::{DutyKey, GroupName, Store};

use crate::drain::DutyHolder;
use crate::edit::{EditSummary, edit};
use crate::error::OperateError;
use crate::group::StoredGroup;
use crate::serialize::{optional_text, texts};

/// A group, or one duty of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every duty of the group.
    Group(GroupName),
    /// One duty.
    Duty(DutyKey),
}

impl Scope {
    /// Name of the group.
    pub fn group(&self) -> &GroupName {
        match self {
            Self::Group(group) => group,
            Self::Duty(duty) => &duty.group,
        }
    }

    /// The duty, if it is one.
    pub fn duty(&self) -> Option<&DutyKey> {
        match self {
            Self::Group(_) => None,
            Self::Duty(duty) => Some(duty),
        }
    }
}

/// A pause to set or to end.
#[derive(Clone, Debug)]
pub struct PauseOptions {
    /// Duty or group.
    pub scope: Scope,
    /// Pause (`true`) or resume (`false`).
    pub pause: bool,
    /// Check everything and change nothing.
    pub dry_run: bool,
}

/// Outcome of a pause or resume.
#[derive(Clone, Debug, Serialize)]
pub struct PauseReport {
    /// Change of the group's document.
    #[serde(flatten)]
    pub edit: EditSummary,
    /// Duty; `None` for the whole group.
    #[serde(serialize_with = "optional_text")]
    pub duty: Option<DutyKey>,
    /// The whole group is paused.
    pub pause_all: bool,
    /// Duties that are paused by themselves.
    #[serde(serialize_with = "texts")]
    pub paused: Vec<DutyKey>,
    /// Duties in scope that were held.
    pub held: Vec<DutyHolder>,
    /// A holder only shares the keys and does not follow the pause.
    #[serde(skip)]
    pub foreign_holder: bool,
}

/// Pauses or resumes a duty or a group.
pub async fn pause(store: &dyn Store, options: &PauseOptions) -> Result<PauseReport, OperateError> {
    let PauseOptions { scope, pause, dry_run } = options;
    let change = |before: &StoredGroup, document: &mut GroupConfig| {
        match scope {
            Scope::Group(_) => document.all_paused = *pause,
            Scope::Duty(duty) => {
                before.check_duty(&duty.id)?;
                match pause {
                    true => document.paused.insert(duty.id.clone()),
                    false => document.paused.remove(&duty.id),
                };
            }
        }
        Ok(())
    };
    let (before, document, edit) = edit(store, scope.group(), *dry_run, change).await?;
    let in_scope = |duty: &DutyKey| scope.duty().is_none_or(|one| one == duty);
    let holders = before.holders.iter().filter(|holder| in_scope(&holder.duty));
    let held: Vec<DutyHolder> =
        holders.filter(|it| it.holder.is_some()).map(DutyHolder::from).collect();
    let mut foreign = before.members.iter().filter(|member| member.nonce.is_none());
    let foreign_holder =
        foreign.any(|one| held.iter().any(|it| it.holder.as_ref() == Some(&one.instance)));
    let key = |id| DutyKey { group: before.name.clone(), id };
    Ok(PauseReport {
        edit,
        duty: scope.duty().cloned(),
        pause_all: document.all_paused,
        paused: document.paused.into_iter().map(key).collect(),
        held,
        foreign_holder,
    })
}
