//! Checkpoints: judged and stored in one step.

use std::collections::VecDeque;

use tenure_core::store::{Checkpoint, Commit, Committed};
use tenure_core::{DutyKey, LocalInstant, Session, StoreResult, Version};

use super::{GroupRows, StoreState, rules};

impl StoreState {
    pub(crate) fn load(&mut self, duty: &DutyKey) -> Option<Checkpoint> {
        self.group(&duty.group).checkpoints.get(&duty.id)?.front().cloned()
    }

    pub(crate) fn commit(
        &mut self,
        session: &Session,
        commits: &[Commit],
        now: LocalInstant,
    ) -> StoreResult<Vec<Committed>> {
        let group = self.group(&session.group);
        commits.iter().map(|commit| group.commit(session, commit, now)).collect()
    }

    pub(crate) fn history(&mut self, duty: &DutyKey) -> Vec<Checkpoint> {
        let ring = self.group(&duty.group).checkpoints.get(&duty.id);
        ring.map(|ring| ring.iter().cloned().collect()).unwrap_or_default()
    }
}

impl GroupRows {
    /// Decides a commit without making it.
    pub(crate) fn judge(
        &self,
        session: &Session,
        commit: &Commit,
        now: LocalInstant,
    ) -> StoreResult<Committed> {
        let id = &commit.hold.duty.id;
        let stored = self.checkpoints.get(id).and_then(VecDeque::front);
        let stored = stored.map_or_else(Default::default, |it| (it.version, it.epoch));
        rules::commit(self.last_grant(id, now).as_ref(), stored, session, commit)
    }

    /// Returns the checkpoint that an accepted commit stores.
    pub(crate) fn checkpoint(
        &self,
        commit: &Commit,
        version: Version,
        now: LocalInstant,
    ) -> Checkpoint {
        Checkpoint {
            version,
            epoch: commit.hold.epoch,
            instance: commit.hold.instance.clone(),
            document: commit.document.clone(),
            unix_ms: self.wall(now),
        }
    }

    fn commit(
        &mut self,
        session: &Session,
        commit: &Commit,
        now: LocalInstant,
    ) -> StoreResult<Committed> {
        let committed = self.judge(session, commit, now)?;
        if let Committed::Saved(version) = committed {
            let checkpoint = self.checkpoint(commit, version, now);
            let ring = self.checkpoints.entry(commit.hold.duty.id.clone()).or_default();
            ring.push_front(checkpoint);
            ring.truncate(self.retention.history_slots);
        }
        Ok(committed)
    }
}
