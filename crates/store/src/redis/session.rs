//! Sessions: opening, keeping alive, closing, evicting, and listing members.

use redis::Value;
use tenure_core::store::{
    Closed, Evict, Evicted, HoldFate, KeptAlive, Member, OpenSession, Opened,
};
use tenure_core::{
    Epoch, GroupName, Hold, InstanceId, Mark, Nonce, Note, Reason, Session, StoreError, StoreResult,
};

use super::client::CommandResult;
use super::reply::{RedisReply, text};
use super::script::{Script, ScriptCall};
use super::{MAX_SCRIPT_ITEMS, REMEMBERED_MS, Redis, error, has_two_names, is_reset};

/// Returns the epoch to send for a hold: zero, which is never valid, for another session's hold.
pub(super) fn epoch_for(session: &Session, hold: &Hold) -> u64 {
    if hold.is_of(session) { hold.epoch.get() } else { Epoch::ZERO.get() }
}

impl Redis {
    pub(super) async fn session_open(&self, open: &OpenSession) -> StoreResult<Opened> {
        let reply = self.call_one(&self.control, |incarnation| {
            self.script_with_index(Script::SessionOpen, incarnation, &open.group)
                .session(&open.session())
                .arg(open.ttl.as_millis())
                .arg(open.note.as_str())
                .arg(REMEMBERED_MS)
                .arg(Mark::first(open.nonce).0)
        });
        match text(reply.await?)?.as_str() {
            "open" => Ok(Opened::Open(open.session())),
            "taken" => Ok(Opened::Taken),
            "spent" => Ok(Opened::Spent),
            "evicted" => Ok(Opened::Evicted),
            _ => Err(error::unexpected("unknown outcome for session open")),
        }
    }

    pub(super) async fn session_close(
        &self,
        session: &Session,
        reason: &Reason,
    ) -> StoreResult<Closed> {
        let reply = self.ask(&self.control, |incarnation| {
            let call = self.script(Script::SessionClose, incarnation, &session.group);
            call.session(session).arg(reason.as_str())
        });
        let mut reply = reply.await?;
        let (open, _freed, more) = (reply.flag()?, reply.number()?, reply.flag()?);
        if more {
            let who = (&session.instance, session.nonce);
            self.session_free(&session.group, who, ("released", reason)).await?;
        }
        Ok(if open { Closed::Closed } else { Closed::AlreadyEnded })
    }

    /// Frees the remaining holds of an ended session, in steps that block the server only briefly.
    async fn session_free(
        &self,
        group: &GroupName,
        (instance, nonce): (&InstanceId, Nonce),
        (kind, reason): (&str, &Reason),
    ) -> StoreResult<u64> {
        let mut freed = 0;
        loop {
            let reply = self.call_one(&self.control, |incarnation| {
                let call = self.script(Script::SessionFree, incarnation, group);
                call.arg(instance.as_str()).arg(nonce.to_string()).arg(kind).arg(reason.as_str())
            });
            // The session has ended whatever happens here; remaining leases expire at their TTL.
            let mut reply = RedisReply::of(reply.await.map_err(StoreError::or_happened)?)?;
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
    ) -> StoreResult<KeptAlive> {
        if let Some(newest) = holds.iter().map(|hold| hold.epoch).max() {
            self.saw(newest);
        }
        // Without holds, the session itself must still be extended.
        let mut chunks: Vec<&[Hold]> = holds.chunks(MAX_SCRIPT_ITEMS).collect();
        if chunks.is_empty() {
            chunks.push(&[]);
        }
        // Only the newest mark can match. An older version may raise the epoch of a duty whose
        // lease it knows under another name, so for such duties the epochs are compared every time.
        let newest = holds.iter().map(|hold| hold.mark).max();
        let mark = |chunk: &&[Hold]| {
            let one_name = !chunk.iter().any(|hold| has_two_names(&hold.duty));
            Hold::common_mark(chunk, session).filter(|mark| one_name && Some(*mark) == newest)
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
        // Where the mark did not match, nothing was done: the epochs must be compared.
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
            // Other chunks are extended by now, so a failure here means unknown, not refused.
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
    ) -> ScriptCall {
        let root = self.root(&session.group);
        let leases = chunk.iter().map(|hold| self.lease_key(&root, &hold.duty));
        let call = Script::SessionKeep.call(1 + chunk.len()).arg(self.marker()).args(leases);
        let call = call
            .arg(incarnation)
            .arg(&root)
            .session(session)
            .arg(session.ttl.as_millis())
            .arg(REMEMBERED_MS)
            .arg(u8::from(note.is_some()))
            .arg(note.map_or("", Note::as_str));
        match mark {
            Some(mark) => call.arg(mark.0),
            None => call
                .arg("")
                .args(chunk.iter().map(|hold| hold.duty.id.escaped()))
                .args(chunk.iter().map(|hold| epoch_for(session, hold))),
        }
    }

    pub(super) async fn session_evict(
        &self,
        group: &GroupName,
        instance: &InstanceId,
        when: Evict,
        reason: &Reason,
    ) -> StoreResult<Evicted> {
        let reply = self.ask(&self.control, |incarnation| {
            let when = match when {
                Evict::Now => "now",
                Evict::AtTtl => "ttl",
            };
            self.script(Script::InstanceEvict, incarnation, group)
                .arg(instance.as_str())
                .arg(&*instance.escaped())
                .arg(when)
                .arg(reason.as_str())
                .arg(REMEMBERED_MS)
        });
        let mut reply = reply.await?;
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

    pub(super) async fn group_members(&self, group: &GroupName) -> StoreResult<Vec<Member>> {
        let root = self.root(group);
        let found = self.foreign.look(&self.data, group, &root).await?;
        let reply = self.ask(&self.data, |incarnation| {
            self.script(Script::GroupMembers, incarnation, group).args(&found.nodes)
        });
        let mut reply = reply.await?;
        let mut members = Vec::new();
        while !reply.is_done() {
            let (id, nonce, note) = (reply.text()?, reply.text()?, reply.bytes()?);
            let (remaining, evicted) = (reply.remaining()?, reply.flag()?);
            // A foreign key whose name cannot be an instance id is not a heartbeat.
            let Ok(instance) = InstanceId::unescape(&id) else { continue };
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

/// Combines the answers of the chunks. A chunk without an answer leaves its holds unknown; the call
/// fails only if no chunk has one.
fn kept_alive(answers: Vec<CommandResult>, chunks: &[&[Hold]]) -> StoreResult<KeptAlive> {
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
                // A claim may have come between two chunks, so the older mark is the safe one.
                let seen = Mark(lost.number()?);
                mark = Some(mark.map_or(seen, |mark| mark.min(seen)));
                while !lost.is_done() {
                    let place = lost.number()? as usize;
                    match fates.get_mut((from + place).saturating_sub(1)) {
                        Some(fate) => *fate = HoldFate::Lost,
                        None => return Err(error::unexpected("hold number out of range")),
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

    fn fates(answers: Vec<CommandResult>) -> StoreResult<KeptAlive> {
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
