//! Checkpoints and their history.

use tenure_core::store::{Checkpoint, Commit, Committed, check};
use tenure_core::{Code, Document, DutyKey, Epoch, InstanceId, Session, StoreError, Version};

use super::link::settle;
use super::reply::Reply;
use super::script::Script;
use super::session::epoch_for;
use super::{CHUNK, Redis, error};

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
            let commands = duties.chunks(CHUNK).map(|chunk| {
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
            let mut reply = Reply::of(value)?;
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
            let commands = commits.chunks(CHUNK).map(|chunk| {
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
            let mut reply = Reply::of(value)?;
            while !reply.is_done() {
                committed.push(self.committed(&mut reply)?);
            }
        }
        match committed.len() == commits.len() {
            true => Ok(committed),
            false => Err(error::unexpected("not one outcome for each commit")),
        }
    }

    fn committed(&self, reply: &mut Reply) -> Result<Committed, StoreError> {
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
        let mut reply = Reply::of(reply.await?)?;
        let mut history = Vec::new();
        while !reply.is_done() {
            let entry = reply.bytes()?;
            let unpacked = unpack(&entry).ok_or_else(|| {
                StoreError::refused(Code::Damaged, format!("an entry in the history of {duty}"))
            })?;
            history.push(self.seen_in(unpacked));
        }
        Ok(history)
    }
}

fn checkpoint(mut fields: Reply) -> Result<Checkpoint, StoreError> {
    Ok(Checkpoint {
        version: Version::new(fields.number()?)?,
        epoch: Epoch::new(fields.number()?)?,
        instance: InstanceId::new(fields.text()?)?,
        document: Document::from_store(fields.bytes()?)?,
        unix_ms: fields.number()?,
    })
}

/// Reads an entry as the commit script packs it: `version epoch unix_ms length\n`, then an instance
/// of that length, then the document.
fn unpack(entry: &[u8]) -> Option<Checkpoint> {
    let end = entry.iter().position(|byte| *byte == b'\n')?;
    let (head, rest) = (std::str::from_utf8(&entry[..end]).ok()?, &entry[end + 1..]);
    let numbers: Vec<u64> =
        head.split(' ').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    let [version, epoch, unix_ms, length] = numbers[..] else {
        return None;
    };
    let (instance, document) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    Some(Checkpoint {
        version: Version::new(version).ok()?,
        epoch: Epoch::new(epoch).ok()?,
        instance: InstanceId::new(std::str::from_utf8(instance).ok()?).ok()?,
        document: Document::from_store(document.to_vec()).ok()?,
        unix_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_the_history_is_read_back_whatever_its_bytes() {
        let read = unpack(b"3 17 1700000000000 3\na bx\n\0\xff").unwrap();
        assert_eq!((read.version.get(), read.epoch.get()), (3, 17));
        assert_eq!(read.instance.as_str(), "a b");
        assert_eq!(read.document.as_bytes(), b"x\n\0\xff");
    }

    #[test]
    fn something_else_is_no_entry() {
        for bad in [
            &b""[..],
            b"\n",
            b"1 2 3\nx",
            b"1 2 3 9\nshort",
            b"1 2 3 x\ny",
            b"9007199254740992 1 1 1\ny",
        ] {
            assert_eq!(unpack(bad), None);
        }
    }
}
