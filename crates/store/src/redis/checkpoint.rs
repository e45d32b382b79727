//! Checkpoints and their history.

use tenure_core::store::{Checkpoint, Commit, Committed};
use tenure_core::{
    Code, Document, DutyKey, Epoch, InstanceId, Session, StoreError, StoreResult, Version,
};

use super::reply::RedisReply;
use super::script::Script;
use super::session::epoch_for;
use super::{Redis, error};
use crate::packed;

impl Redis {
    pub(super) fn key(&self, kind: &str, duty: &DutyKey) -> String {
        format!("{}{kind}:{}", self.root(&duty.group), duty.id.escaped())
    }

    pub(super) async fn checkpoint_load(
        &self,
        duties: &[DutyKey],
    ) -> StoreResult<Vec<Option<Checkpoint>>> {
        let read = |fields| Ok(self.seen_in(checkpoint(fields)?));
        self.load_each(Script::CheckpointLoad, &["checkpoint"], duties, read).await
    }

    /// Reads what is stored for each duty, from keys of these kinds.
    pub(super) async fn load_each<T>(
        &self,
        script: Script,
        kinds: &[&str],
        duties: &[DutyKey],
        read: impl Fn(RedisReply) -> StoreResult<T>,
    ) -> StoreResult<Vec<Option<T>>> {
        let answers = self.call_chunks(&self.data, duties, |incarnation, chunk| {
            let call = script.call(kinds.len() * chunk.len() + 1).arg(self.marker());
            let keys = |kind: &&str| chunk.iter().map(|duty| self.key(kind, duty)).collect();
            call.args(kinds.iter().flat_map::<Vec<_>, _>(keys)).arg(incarnation)
        });
        let mut stored = Vec::with_capacity(duties.len());
        for value in answers.await? {
            let mut reply = RedisReply::of(value)?;
            while !reply.is_done() {
                let fields = reply.list()?;
                stored.push((!fields.is_done()).then(|| read(fields)).transpose()?);
            }
        }
        match stored.len() == duties.len() {
            true => Ok(stored),
            false => Err(error::unexpected(&format!("wrong number of {}s", kinds[0]))),
        }
    }

    fn seen_in(&self, checkpoint: Checkpoint) -> Checkpoint {
        self.saw(checkpoint.epoch);
        checkpoint
    }

    pub(super) async fn checkpoint_commit(
        &self,
        session: &Session,
        commits: &[Commit],
    ) -> StoreResult<Vec<Committed>> {
        let answers = self.call_chunks(&self.data, commits, |incarnation, chunk| {
            self.script(Script::CheckpointCommit, incarnation, &session.group)
                .session(session)
                .arg(chunk.len())
                .args(chunk.iter().map(|commit| commit.hold.duty.id.escaped()))
                .args(chunk.iter().map(|commit| epoch_for(session, &commit.hold)))
                .args(chunk.iter().map(|commit| commit.expected.get()))
                .args(chunk.iter().map(|commit| commit.document.as_bytes()))
        });
        let mut committed = Vec::with_capacity(commits.len());
        for value in answers.await? {
            let mut reply = RedisReply::of(value)?;
            while !reply.is_done() {
                committed.push(self.committed(&mut reply)?);
            }
        }
        match committed.len() == commits.len() {
            true => Ok(committed),
            false => Err(error::unexpected("wrong number of commit outcomes")),
        }
    }

    fn committed(&self, reply: &mut RedisReply) -> StoreResult<Committed> {
        let (outcome, number) = (reply.number()?, reply.number()?);
        match outcome {
            1 => Ok(Committed::Saved(Version::new(number)?)),
            2 => {
                let newest = Epoch::new(number)?;
                self.saw(newest);
                Ok(Committed::Fenced { newest })
            }
            3 => Ok(Committed::Conflict { stored: Version::new(number)? }),
            _ => Err(error::unexpected("unknown outcome code for commit")),
        }
    }

    pub(super) async fn checkpoint_history(&self, duty: &DutyKey) -> StoreResult<Vec<Checkpoint>> {
        let reply = self.ask(&self.data, |incarnation| {
            let call = Script::CheckpointHistory.call(2).arg(self.marker());
            call.arg(self.key("history", duty)).arg(incarnation)
        });
        let mut reply = reply.await?;
        let mut history = Vec::new();
        while !reply.is_done() {
            let entry = reply.bytes()?;
            let unpacked = packed::unpack(&entry).ok_or_else(|| {
                StoreError::refused(
                    Code::Damaged,
                    format!("an entry in the history of {duty} cannot be read"),
                )
            })?;
            history.push(self.seen_in(unpacked));
        }
        Ok(history)
    }
}

fn checkpoint(mut fields: RedisReply) -> StoreResult<Checkpoint> {
    Ok(Checkpoint {
        version: Version::new(fields.number()?)?,
        epoch: Epoch::new(fields.number()?)?,
        instance: InstanceId::new(fields.text()?)?,
        document: Document::from_store(fields.bytes()?)?,
        unix_ms: fields.number()?,
    })
}
