//! Checkpoints and their history.

use tenure_core::store::{Checkpoint, Commit, Committed, check};
use tenure_core::{Code, Document, DutyKey, Epoch, InstanceId, Session, StoreError, Version};

use super::client::settle;
use super::reply::RedisReply;
use super::script::Script;
use super::session::epoch_for;
use super::{MAX_SCRIPT_ITEMS, Redis, error};
use crate::packed;

impl Redis {
    fn key(&self, kind: &str, duty: &DutyKey) -> String {
        format!("{}{kind}:{}", self.root(&duty.group), duty.id.escaped())
    }

    pub(super) async fn checkpoint_load(
        &self,
        duties: &[DutyKey],
    ) -> Result<Vec<Option<Checkpoint>>, StoreError> {
        check::load(duties)?;
        let answers = self.call(&self.data, |incarnation| {
            let commands = duties.chunks(MAX_SCRIPT_ITEMS).map(|chunk| {
                let mut command = Script::CheckpointLoad.call(chunk.len() + 1);
                command.arg(self.marker());
                for duty in chunk {
                    command.arg(self.key("checkpoint", duty));
                }
                command.arg(incarnation);
                command
            });
            commands.collect()
        });
        let mut stored = Vec::with_capacity(duties.len());
        for value in settle(answers.await?)? {
            let mut reply = RedisReply::of(value)?;
            while !reply.is_done() {
                let fields = reply.list()?;
                stored.push(match fields.is_done() {
                    true => None,
                    false => Some(self.seen_in(checkpoint(fields)?)),
                });
            }
        }
        match stored.len() == duties.len() {
            true => Ok(stored),
            false => Err(error::unexpected("not one checkpoint for each duty")),
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
    ) -> Result<Vec<Committed>, StoreError> {
        check::commit(session, commits)?;
        let nonce = session.nonce.to_string();
        let answers = self.call(&self.data, |incarnation| {
            let commands = commits.chunks(MAX_SCRIPT_ITEMS).map(|chunk| {
                let mut command =
                    self.script(Script::CheckpointCommit, incarnation, &session.group);
                command
                    .arg(session.instance.as_str())
                    .arg(&*session.instance.escaped())
                    .arg(&nonce)
                    .arg(chunk.len());
                for commit in chunk {
                    command.arg(&*commit.hold.duty.id.escaped());
                }
                for commit in chunk {
                    command.arg(epoch_for(session, &commit.hold));
                }
                for commit in chunk {
                    command.arg(commit.expected.get());
                }
                for commit in chunk {
                    command.arg(commit.document.as_bytes());
                }
                command
            });
            commands.collect()
        });
        let mut committed = Vec::with_capacity(commits.len());
        for value in settle(answers.await?)? {
            let mut reply = RedisReply::of(value)?;
            while !reply.is_done() {
                committed.push(self.committed(&mut reply)?);
            }
        }
        match committed.len() == commits.len() {
            true => Ok(committed),
            false => Err(error::unexpected("not one outcome for each commit")),
        }
    }

    fn committed(&self, reply: &mut RedisReply) -> Result<Committed, StoreError> {
        let (outcome, number) = (reply.number()?, reply.number()?);
        match outcome {
            1 => Ok(Committed::Saved(Version::new(number)?)),
            2 => {
                let newest = Epoch::new(number)?;
                self.saw(newest);
                Ok(Committed::Fenced { newest })
            }
            3 => Ok(Committed::Conflict { stored: Version::new(number)? }),
            _ => Err(error::unexpected("no outcome of a commit")),
        }
    }

    pub(super) async fn checkpoint_history(
        &self,
        duty: &DutyKey,
    ) -> Result<Vec<Checkpoint>, StoreError> {
        let reply = self.call_one(&self.data, |incarnation| {
            let mut command = Script::CheckpointHistory.call(2);
            command.arg(self.marker()).arg(self.key("history", duty)).arg(incarnation);
            command
        });
        let mut reply = RedisReply::of(reply.await?)?;
        let mut history = Vec::new();
        while !reply.is_done() {
            let entry = reply.bytes()?;
            let unpacked = packed::unpack(&entry).ok_or_else(|| {
                StoreError::refused(Code::Damaged, format!("an entry in the history of {duty}"))
            })?;
            history.push(self.seen_in(unpacked));
        }
        Ok(history)
    }
}

fn checkpoint(mut fields: RedisReply) -> Result<Checkpoint, StoreError> {
    Ok(Checkpoint {
        version: Version::new(fields.number()?)?,
        epoch: Epoch::new(fields.number()?)?,
        instance: InstanceId::new(fields.text()?)?,
        document: Document::from_store(fields.bytes()?)?,
        unix_ms: fields.number()?,
    })
}
