//! Sessions.

use tenure_core::store::{Closed, Evict, Evicted, HoldFate, KeptAlive, OpenSession, Opened, check};
use tenure_core::{Code, GroupName, Hold, InstanceId, Mark, Note, Reason, Session, StoreError};
use tokio_postgres::types::Type;

use super::rows::{column, index};
use super::{Parameter, Postgres, SessionKey};
use crate::fates_by_mark;

impl Postgres {
    pub(super) async fn session_open(&self, open: &OpenSession) -> Result<Opened, StoreError> {
        let session = open.session();
        let who = SessionKey::of(&session);
        let [group, instance, nonce] = who.parameters();
        let (ttl, note) = (open.ttl.as_millis() as i64, open.note.as_str().as_bytes());
        let mark = Mark::first(open.nonce).0 as i64;
        let (ttl, note) = ((&ttl as _, Type::INT8), (&note as _, Type::BYTEA));
        let parameters = [group, instance, nonce, ttl, note, (&mark, Type::INT8)];
        let outcome: String = self.value(&self.statements.session_open, &parameters).await?;
        match outcome.as_str() {
            "open" => Ok(Opened::Open(open.session())),
            "taken" => Ok(Opened::Taken),
            "spent" => Ok(Opened::Spent),
            "evicted" => Ok(Opened::Evicted),
            other => Err(StoreError::unknown(Code::Damaged, format!("answer {other:?}"))),
        }
    }

    pub(super) async fn session_close(
        &self,
        session: &Session,
        reason: &Reason,
    ) -> Result<Closed, StoreError> {
        let who = SessionKey::of(session);
        let [group, instance, nonce] = who.parameters();
        let parameters = [group, instance, nonce, (&reason.as_str(), Type::TEXT)];
        let outcome: String = self.value(&self.statements.session_close, &parameters).await?;
        Ok(if outcome == "closed" { Closed::Closed } else { Closed::AlreadyEnded })
    }

    pub(super) async fn session_keep_alive(
        &self,
        session: &Session,
        note: Option<&Note>,
        holds: &[Hold],
    ) -> Result<KeptAlive, StoreError> {
        check::keep_alive(holds)?;
        let who = SessionKey::of(session);
        let [group, instance, nonce] = who.parameters();
        let note = note.map(|note| note.as_str().as_bytes());
        let parameters = [group, instance, nonce, (&note, Type::BYTEA)];
        let keeping = self.keep_alive_pool.query(&self.statements.session_keep_alive, &parameters);
        // Found while the server is at work.
        let common = async { Hold::common_mark(holds, session) };
        let (rows, common) = tokio::join!(keeping, common);
        let rows = rows?;
        let Some(row) = rows.first() else {
            return Ok(KeptAlive::Ended);
        };
        let mark = Mark(column::<i64>(row, 0)? as u64);
        Ok(KeptAlive::Kept { mark, holds: self.hold_fates(session, holds, common, mark).await })
    }

    pub(super) async fn session_evict(
        &self,
        group: &GroupName,
        instance: &InstanceId,
        when: Evict,
        reason: &Reason,
    ) -> Result<Evicted, StoreError> {
        let now = when == Evict::Now;
        let parameters: [Parameter<'_>; 4] = [
            (&group.as_str(), Type::TEXT),
            (&instance.as_str(), Type::TEXT),
            (&now, Type::BOOL),
            (&reason.as_str(), Type::TEXT),
        ];
        let ended: Option<i64> = self.value(&self.statements.session_evict, &parameters).await?;
        Ok(match ended {
            Some(ended) => Evicted::Evicted { ended: ended as u64 },
            None => Evicted::NotAMember,
        })
    }

    /// Which of the holds stand, looking only at those whose mark does not already say so. The
    /// session is extended by now: what cannot be looked at is unknown, not refused.
    async fn hold_fates(
        &self,
        session: &Session,
        holds: &[Hold],
        common: Option<Mark>,
        mark: Mark,
    ) -> Vec<HoldFate> {
        let (mut fates, unsure) = fates_by_mark(session, holds, common, mark);
        if unsure.is_empty() {
            return fates;
        }
        let who = SessionKey::of(session);
        let duties: Vec<&str> = unsure.iter().map(|n| holds[*n].duty.id.as_str()).collect();
        let epochs: Vec<i64> = unsure.iter().map(|n| holds[*n].epoch.as_i64()).collect();
        let [group, instance, nonce] = who.parameters();
        let (duties, epochs) = ((&duties as _, Type::TEXT_ARRAY), (&epochs as _, Type::INT8_ARRAY));
        let parameters = [group, instance, nonce, duties, epochs];
        let looked = self.keep_alive_pool.query(&self.statements.hold_standing, &parameters).await;
        let standing: Result<Vec<usize>, StoreError> =
            looked.and_then(|rows| rows.iter().map(index).collect());
        match standing {
            Ok(standing) => {
                for n in standing.into_iter().filter_map(|position| unsure.get(position)) {
                    fates[*n] = HoldFate::Kept;
                }
            }
            Err(_) => unsure.into_iter().for_each(|n| fates[n] = HoldFate::Unknown),
        }
        fates
    }
}
