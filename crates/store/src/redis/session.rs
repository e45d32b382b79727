//! Sessions: opening, keeping alive, closing, evicting, and the members that they make.

use redis::Value;
use tenure_core::store::{
    Closed, Evict, Evicted, HoldFate, KeptAlive, Member, OpenSession, Opened, check,
};
use tenure_core::{
    Epoch, GroupName, Hold, InstanceId, Mark, Nonce, Note, Reason, Session, StoreError,
};

use super::client::CommandResult;
use super::reply::{RedisReply, text};
use super::script::Script;
use super::{MAX_SCRIPT_ITEMS, REMEMBERED_MS, Redis, error, has_two_names, is_reset};

/// The epoch to send for a hold: none ever has zero, so a hold of another session never stands.
pub(super) fn epoch_for(session: &Session, hold: &Hold) -> u64 {
    match hold.is_of(session) {
        true => hold.epoch.get(),
        false => Epoch::ZERO.get(),
    }
}

impl Redis {
    pub(super) async fn session_open(&self, open: &OpenSession) -> Result<Opened, StoreError> {
        let reply = self.call_one(&self.control, |incarnation| {
            let mut command = self.script_with_index(Script::SessionOpen, incarnation, &open.group);
            command
                .arg(open.instance.as_str())
                .arg(&*open.instance.escaped())
                .arg(open.nonce.to_string())
                .arg(open.ttl.as_millis())
                .arg(open.note.as_str())
                .arg(REMEMBERED_MS)
                .arg(Mark::first(open.nonce).0);
            command
        });
        match text(reply.await?)?.as_str() {
            "open" => Ok(Opened::Open(open.session())),
            "taken" => Ok(Opened::Taken),
            "spent" => Ok(Opened::Spent),
            "evicted" => Ok(Opened::Evicted),
            _ => Err(error::unexpected("no outcome of an opening")),
        }
    }

    pub(super) async fn session_close(
        &self,
        session: &Session,
        reason: &Reason,
    ) -> Result<Closed, StoreError> {
        let reply = self.call_one(&self.control, |incarnation| {
            let mut command = self.script(Script::SessionClose, incarnation, &session.group);
            command
                .arg(session.instance.as_str())
                .arg(&*session.instance.escaped())
                .arg(session.nonce.to_string())
                .arg(reason.as_str());
            command
        });
        let mut reply = RedisReply::of(reply.await?)?;
        let (open, _freed, more) = (reply.flag()?, reply.number()?, reply.flag()?);
        if more {
            let who = (&session.instance, session.nonce);
            self.session_free(&session.group, who, ("released", reason)).await?;
        }
        Ok(match open {
            true => Closed::Closed,
            false => Closed::AlreadyEnded,
        })
    }

    /// Frees what an ended session has left, in steps that do not hold up the server.
    async fn session_free(
        &self,
        group: &GroupName,
        (instance, nonce): (&InstanceId, Nonce),
        (kind, reason): (&str, &Reason),
    ) -> Result<u64, StoreError> {
        let mut freed = 0;
        loop {
            let reply = self.call_one(&self.control, |incarnation| {
                let mut command = self.script(Script::SessionFree, incarnation, group);
                command
                    .arg(instance.as_str())
                    .arg(nonce.to_string())
                    .arg(kind)
                    .arg(reason.as_str());
                command
            });
            // The session has ended whatever happens here: what is left ends at its TTL.
            let mut reply = RedisReply::of(reply.await.map_err(began)?)?;
            freed += reply.number()?;
            if !reply.flag()? {
                return Ok(freed);
            }
        }
    }

    pub(super) async fn session_keep_alive(
        &self,
        session: &Session,
        note: Option<&Note>,
        holds: &[Hold],
    ) -> Result<KeptAlive, StoreError> {
        check::keep_alive(holds)?;
        if let Some(newest) = holds.iter().map(|hold| hold.epoch).max() {
            self.saw(newest);
        }
        // Without holds there is still a session to extend.
        let mut chunks: Vec<&[Hold]> = holds.chunks(MAX_SCRIPT_ITEMS).collect();
        if chunks.is_empty() {
            chunks.push(&[]);
        }
        // Only the newest mark can fit. An older version may raise the epoch of a duty whose lease
        // it knows by another name: there the epochs are looked at every time.
        let newest = holds.iter().map(|hold| hold.mark).max();
        let mark = |chunk: &&[Hold]| {
            let told = !chunk.iter().any(|hold| has_two_names(&hold.duty));
            Hold::common_mark(chunk, session).filter(|mark| told && Some(*mark) == newest)
        };
        let marks: Vec<_> = chunks.iter().map(mark).collect();
        let answers = self.call(&self.control, |incarnation| {
            let chunks = chunks.iter().zip(&marks).enumerate();
            chunks
                .map(|(index, (chunk, mark))| {
                    let note = note.filter(|_| index == 0);
                    self.keep_chunk(session, note, chunk, *mark, incarnation)
                })
                .collect()
        });
        let mut answers = answers.await?;
        // Where the mark did not fit nothing was done: the epochs have to be looked at.
        let again: Vec<_> =
            (0..answers.len()).filter(|n| matches!(answers[*n], Ok(Value::Int(-2)))).collect();
        if !again.is_empty() {
            let looked = self.call(&self.control, |incarnation| {
                let keep = |n: &usize| {
                    let note = note.filter(|_| *n == 0);
                    self.keep_chunk(session, note, chunks[*n], None, incarnation)
                };
                again.iter().map(keep).collect()
            });
            // Other chunks are extended by now: what cannot be looked at is unknown, not refused.
            let looked = match looked.await {
                Ok(looked) => looked,
                Err(error) => vec![Err(error); again.len()],
            };
            for (n, answer) in again.iter().copied().zip(looked) {
                answers[n] = answer;
            }
        }
        kept_alive(answers, &chunks)
    }

    fn keep_chunk(
        &self,
        session: &Session,
        note: Option<&Note>,
        chunk: &[Hold],
        mark: Option<Mark>,
        incarnation: &str,
    ) -> redis::Cmd {
        let root = self.root(&session.group);
        let mut command = Script::SessionKeep.call(1 + chunk.len());
        command.arg(self.marker());
        for hold in chunk {
            command.arg(self.lease_key(&root, &hold.duty));
        }
        command
            .arg(incarnation)
            .arg(&root)
            .arg(session.instance.as_str())
            .arg(&*session.instance.escaped())
            .arg(session.nonce.to_string())
            .arg(session.ttl.as_millis())
            .arg(REMEMBERED_MS)
            .arg(u8::from(note.is_some()))
            .arg(note.map_or("", Note::as_str));
        match mark {
            Some(mark) => drop(command.arg(mark.0)),
            None => {
                command.arg("");
                for hold in chunk {
                    command.arg(&*hold.duty.id.escaped());
                }
                for hold in chunk {
                    command.arg(epoch_for(session, hold));
                }
            }
        }
        command
    }

    pub(super) async fn session_evict(
        &self,
        group: &GroupName,
        instance: &InstanceId,
        when: Evict,
        reason: &Reason,
    ) -> Result<Evicted, StoreError> {
        let reply = self.call_one(&self.control, |incarnation| {
            let mut command = self.script(Script::InstanceEvict, incarnation, group);
            command
                .arg(instance.as_str())
                .arg(&*instance.escaped())
                .arg(match when {
                    Evict::Now => "now",
                    Evict::AtTtl => "ttl",
                })
                .arg(reason.as_str())
                .arg(REMEMBERED_MS);
            command
        });
        let mut reply = RedisReply::of(reply.await?)?;
        if reply.is_done() {
            return Ok(Evicted::NotAMember);
        }
        let (nonce, mut ended) = (Nonce::parse(&reply.text()?)?, reply.number()?);
        if reply.flag()? {
            let who = (instance, nonce);
            ended += self.session_free(group, who, ("evicted", reason)).await?;
        }
        Ok(Evicted::Evicted { ended })
    }

    pub(super) async fn group_members(&self, group: &GroupName) -> Result<Vec<Member>, StoreError> {
        let root = self.root(group);
        let found = self.foreign.look(&self.data, group, &root).await?;
        let reply = self.call_one(&self.data, |incarnation| {
            let mut command = self.script(Script::GroupMembers, incarnation, group);
            for node in &found.nodes {
                command.arg(node);
            }
            command
        });
        let mut reply = RedisReply::of(reply.await?)?;
        let mut members = Vec::new();
        while !reply.is_done() {
            let (id, nonce, note) = (reply.text()?, reply.text()?, reply.bytes()?);
            let (remaining, evicted) = (reply.remaining()?, reply.flag()?);
            // A foreign key whose name cannot be an instance's is nobody's heartbeat.
            let Ok(instance) = InstanceId::unescape(&id) else {
                continue;
            };
            members.push(Member {
                instance,
                nonce: match nonce.as_str() {
                    "" => None,
                    nonce => Some(Nonce::parse(nonce)?),
                },
                note: Note::from_bytes(note)?,
                remaining,
                evicted,
            });
        }
        members.sort_by(|left, right| left.instance.cmp(&right.instance));
        Ok(members)
    }
}

/// A part of the call has happened already.
fn began(error: StoreError) -> StoreError {
    match error {
        StoreError::Refused(problem) => StoreError::Unknown(problem),
        error => error,
    }
}

/// Puts the chunks together. One that did not answer leaves its holds unknown; only when none did,
/// the call has failed.
fn kept_alive(answers: Vec<CommandResult>, chunks: &[&[Hold]]) -> Result<KeptAlive, StoreError> {
    let mut fates = Vec::with_capacity(chunks.iter().map(|chunk| chunk.len()).sum());
    let mut failed = None;
    let mut mark: Option<Mark> = None;
    for (answer, chunk) in answers.into_iter().zip(chunks) {
        if is_reset(&answer) {
            return Ok(KeptAlive::Ended);
        }
        let from = fates.len();
        match answer {
            Ok(Value::Int(-1)) => return Ok(KeptAlive::Ended),
            Ok(value) => {
                fates.resize(from + chunk.len(), HoldFate::Kept);
                let mut lost = RedisReply::of(value)?;
                // Between two chunks a claim may have come: the older mark claims less.
                let seen = Mark(lost.number()?);
                mark = Some(mark.map_or(seen, |mark| mark.min(seen)));
                while !lost.is_done() {
                    let place = lost.number()? as usize;
                    match fates.get_mut((from + place).saturating_sub(1)) {
                        Some(fate) => *fate = HoldFate::Lost,
                        None => return Err(error::unexpected("no such hold")),
                    }
                }
            }
            Err(error) => {
                failed.get_or_insert(error);
                fates.resize(from + chunk.len(), HoldFate::Unknown);
            }
        }
    }
    match (mark, failed) {
        (None, Some(error)) => Err(error),
        (mark, _) => Ok(KeptAlive::Kept { mark: mark.unwrap_or_default(), holds: fates }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::{Code, DutyKey};

    fn hold() -> Hold {
        Hold {
            duty: DutyKey::new("g", "d").unwrap(),
            epoch: Epoch::new(1).unwrap(),
            instance: InstanceId::new("i").unwrap(),
            nonce: Nonce::from_entropy(1),
            mark: Mark(0),
        }
    }

    fn lost() -> CommandResult {
        Err(error::lost("h:1/0"))
    }

    fn fates(answers: Vec<CommandResult>) -> Result<KeptAlive, StoreError> {
        let (two, one) = ([hold(), hold()], [hold()]);
        kept_alive(answers, &[&two, &one])
    }

    #[test]
    fn what_did_not_answer_is_unknown_and_the_rest_is_told() {
        use HoldFate::{Kept, Lost, Unknown};
        let second_lost = || Ok(Value::Array(vec![Value::Int(7), Value::Int(2)]));
        let none_lost = || Ok(Value::Array(vec![Value::Int(8)]));
        for (answers, expected) in [
            (vec![second_lost(), none_lost()], [Kept, Lost, Kept]),
            (vec![second_lost(), lost()], [Kept, Lost, Unknown]),
            (vec![lost(), none_lost()], [Unknown, Unknown, Kept]),
        ] {
            let Ok(KeptAlive::Kept { holds, mark }) = fates(answers) else { panic!("not kept") };
            assert_eq!(holds, expected);
            assert_eq!(mark.0, if expected[0] == Unknown { 8 } else { 7 });
        }
        assert_eq!(fates(vec![lost(), lost()]).unwrap_err().code(), Code::Lost);
        let ended = fates(vec![none_lost(), Ok(Value::Int(-1))]);
        assert_eq!(ended, Ok(KeptAlive::Ended));
    }
}
