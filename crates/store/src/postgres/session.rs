//! Sessions.

use tenure_core::store::{Closed, Evict, Evicted, HoldFate, KeptAlive, OpenSession, Opened};
use tenure_core::{
    Code, GroupName, Hold, InstanceId, Mark, Note, Reason, Session, StoreError, StoreResult,
};

use super::rows::{column, index};
use super::{Postgres, parameters};
use crate::fates_by_mark;

impl Postgres {
    pub(super) async fn session_open(&self, open: &OpenSession) -> StoreResult<Opened> {
        let (ttl, mark) = (open.ttl.as_millis() as i64, Mark::first(open.nonce).0 as i64);
        let parameters = parameters![
            of open, ttl => INT8, open.note.as_str().as_bytes() => BYTEA, mark => INT8
        ];
        let outcome: String = self.value(&self.statements.session_open, &parameters).await?;
        match outcome.as_str() {
            "open" => Ok(Opened::Open(open.session())),
            "taken" => Ok(Opened::Taken),
            "spent" => Ok(Opened::Spent),
            "evicted" => Ok(Opened::Evicted),
            other => {
                Err(StoreError::unknown(Code::Damaged, format!("session_open returned {other:?}")))
            }
        }
    }

    pub(super) async fn session_close(
        &self,
        session: &Session,
        reason: &Reason,
    ) -> StoreResult<Closed> {
        let parameters = parameters![of session, reason.as_str() => TEXT];
        let outcome: String = self.value(&self.statements.session_close, &parameters).await?;
        Ok(if outcome == "closed" { Closed::Closed } else { Closed::AlreadyEnded })
    }

    pub(super) async fn session_keep_alive(
        &self,
        session: &Session,
        note: Option<&Note>,
        holds: &[Hold],
    ) -> StoreResult<KeptAlive> {
        let note = note.map(|note| note.as_str().as_bytes());
        let parameters = parameters![of session, note => BYTEA];
        let keeping = self.keep_alive_pool.query(&self.statements.session_keep_alive, &parameters);
        // Computed while the server works.
        let common = async { Hold::common_mark(holds, session) };
        let (rows, common) = tokio::join!(keeping, common);
        let rows = rows?;
        let Some(row) = rows.first() else { return Ok(KeptAlive::Ended) };
        let mark = Mark(column::<i64>(row, 0)? as u64);
        Ok(KeptAlive::Kept { mark, holds: self.hold_fates(session, holds, common, mark).await })
    }

    pub(super) async fn session_evict(
        &self,
        group: &GroupName,
        instance: &InstanceId,
        when: Evict,
        reason: &Reason,
    ) -> StoreResult<Evicted> {
        let now = when == Evict::Now;
        let parameters = parameters![
            group.as_str() => TEXT, instance.as_str() => TEXT, now => BOOL, reason.as_str() => TEXT
        ];
        let ended: Option<i64> = self.value(&self.statements.session_evict, &parameters).await?;
        Ok(match ended {
            Some(ended) => Evicted::Evicted { ended: ended as u64 },
            None => Evicted::NotAMember,
        })
    }

    /// Returns the fates of the holds, and looks up only those that their mark does not decide. The
    /// session is already extended, so a hold that cannot be looked up is unknown, not refused.
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
        let duties: Vec<&str> = unsure.iter().map(|n| holds[*n].duty.id.as_str()).collect();
        let epochs: Vec<i64> = unsure.iter().map(|n| holds[*n].epoch.as_i64()).collect();
        let parameters = parameters![of session, duties => TEXT_ARRAY, epochs => INT8_ARRAY];
        let looked = self.keep_alive_pool.query(&self.statements.hold_standing, &parameters).await;
        let standing: StoreResult<Vec<usize>> =
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
