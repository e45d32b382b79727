//! Sessions: opening, keeping alive, closing, evicting, and the members that they make.

use redis::Value;
use tenure_core::store::{
    Closed, Evict, Evicted, HoldFate, KeptAlive, Member, OpenSession, Opened, check,
};
use tenure_core::{
    Epoch, GroupName, Hold, InstanceId, Mark, Nonce, Note, Reason, Session, StoreError,
};

use super::link::Answer;
use super::reply::{Reply, text};
use super::script::Script;
use super::{CHUNK, REMEMBERED_MS, Redis, error, instance, is_reset};

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
                .arg(REMEMBERED_MS);
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
        let mut reply = Reply::of(reply.await?)?;
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
            let mut reply = Reply::of(reply.await.map_err(began)?)?;
            freed += reply.number()?;
            if !reply.flag()? {
                return Ok(freed);
            }
        }
    }

    pub(super) async fn session_keep(
        &self,
        session: &Session,
        note: Option<&Note>,
        holds: &[Hold],
    ) -> Result<KeptAlive, StoreError> {
        check::keep_alive(session, holds)?;
        if let Some(newest) = holds.iter().map(|hold| hold.epoch).max() {
            self.saw(newest);
        }
        // Without holds there is still a session to extend.
        let mut chunks: Vec<&[Hold]> = holds.chunks(CHUNK).collect();
        if chunks.is_empty() {
            chunks.push(&[]);
        }
        let (nonce, root) = (session.nonce.to_string(), self.root(&session.group));
        let answers = self.call(&self.control, |incarnation| {
            let mut commands = Vec::with_capacity(chunks.len());
            for (index, chunk) in chunks.iter().enumerate() {
                let mut command = Script::SessionKeep.call(1 + 2 * chunk.len());
                command.arg(self.marker());
                for kind in ["lease:", "fence:"] {
                    for hold in *chunk {
                        command.arg([&root, kind, &*hold.duty.id.escaped()].concat());
                    }
                }
                command
                    .arg(incarnation)
                    .arg(&root)
                    .arg(session.instance.as_str())
                    .arg(&*session.instance.escaped())
                    .arg(&nonce)
                    .arg(session.ttl.as_millis())
                    .arg(REMEMBERED_MS);
                let note = note.filter(|_| index == 0);
                command.arg(u8::from(note.is_some()));
                command.arg(note.map_or("", Note::as_str));
                for hold in *chunk {
                    command.arg(epoch_for(session, hold));
                }
                commands.push(command);
            }
            commands
        });
        kept_alive(answers.await?, &chunks)
    }

    pub(super) async fn instance_evict(
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
        let mut reply = Reply::of(reply.await?)?;
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
        let mut reply = Reply::of(reply.await?)?;
        let mut members = Vec::new();
        while !reply.is_done() {
            let (id, nonce, note) = (reply.text()?, reply.text()?, reply.bytes()?);
            let (remaining, evicted) = (reply.remaining()?, reply.flag()?);
            // A foreign key whose name cannot be an instance's is nobody's heartbeat.
            let Some(instance) = instance(&id) else {
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
fn kept_alive(answers: Vec<Answer>, chunks: &[&[Hold]]) -> Result<KeptAlive, StoreError> {
    let mut fates = Vec::with_capacity(chunks.iter().map(|chunk| chunk.len()).sum());
    let mut failed = None;
    let mut any = false;
    for (answer, chunk) in answers.into_iter().zip(chunks) {
        if is_reset(&answer) {
            return Ok(KeptAlive::Ended);
        }
        let from = fates.len();
        match answer {
            Ok(Value::Int(-1)) => return Ok(KeptAlive::Ended),
            Ok(value) => {
                any = true;
                fates.resize(from + chunk.len(), HoldFate::Kept);
                let mut lost = Reply::of(value)?;
                while !lost.is_done() {
                    let place = lost.number()? as usize;
                    match fates.get_mut(from + place - 1) {
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
    match failed {
        Some(error) if !any => Err(error),
        _ => Ok(KeptAlive::Kept {
            // This store always looks at each hold.
            mark: Mark(0),
            holds: fates,
        }),
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

    fn lost() -> Answer {
        Err(error::lost("h:1/0"))
    }

    fn fates(answers: Vec<Answer>) -> Result<KeptAlive, StoreError> {
        let (two, one) = ([hold(), hold()], [hold()]);
        kept_alive(answers, &[&two, &one])
    }

    #[test]
    fn what_did_not_answer_is_unknown_and_the_rest_is_told() {
        use HoldFate::{Kept, Lost, Unknown};
        let second_lost = || Ok(Value::Array(vec![Value::Int(2)]));
        let none_lost = || Ok(Value::Array(vec![]));
        for (answers, expected) in [
            (vec![second_lost(), none_lost()], [Kept, Lost, Kept]),
            (vec![second_lost(), lost()], [Kept, Lost, Unknown]),
            (vec![lost(), none_lost()], [Unknown, Unknown, Kept]),
        ] {
            let Ok(KeptAlive::Kept { holds, .. }) = fates(answers) else { panic!("not kept") };
            assert_eq!(holds, expected);
        }
        assert_eq!(fates(vec![lost(), lost()]).unwrap_err().code(), Code::Lost);
        let ended = fates(vec![none_lost(), Ok(Value::Int(-1))]);
        assert_eq!(ended, Ok(KeptAlive::Ended));
    }
}
