//! One commit, which is what most calls are.

use tenure_core::store::{Commit, Committed};
use tenure_core::{Code, Epoch, Session, StoreError, Version};
use tokio_postgres::types::Type;

use super::read::column;
use super::{Postgres, SessionKey, epoch_for};

impl Postgres {
    /// The usual case: one statement, and a second one only to say why it was refused.
    pub(super) async fn commit_one(
        &self,
        session: &Session,
        commit: &Commit,
    ) -> Result<Committed, StoreError> {
        let who = SessionKey::of(session);
        let [group, instance, nonce] = who.parameters();
        let (duty, epoch) = (commit.hold.duty.id.as_str(), epoch_for(session, &commit.hold));
        let (document, expected) = (commit.document.as_bytes(), commit.expected.as_i64());
        let parameters = [
            group,
            instance,
            nonce,
            (&duty as _, Type::TEXT),
            (&epoch as _, Type::INT8),
            (&document as _, Type::BYTEA),
            (&expected as _, Type::INT8),
        ];
        let rows = self.query(&self.statements.checkpoint_commit_one, &parameters).await?;
        if let Some(row) = rows.first() {
            return Ok(Committed::Saved(Version::from_i64(column(row, 0)?)?));
        }
        let rows = self.query(&self.statements.checkpoint_commit_refused, &parameters[..5]).await?;
        let row = rows.first().ok_or_else(|| StoreError::refused(Code::Failed, "no answer row"))?;
        let (stands, stored): (bool, i64) = (column(row, 0)?, column(row, 1)?);
        match stands {
            true if stored != expected => {
                Ok(Committed::Conflict { stored: Version::from_i64(stored)? })
            }
            // Another commit under the same hold came in between: now it would fit.
            true => Err(StoreError::refused(Code::Busy, "another commit was under way")),
            false => Ok(Committed::Fenced { newest: Epoch::from_i64(column(row, 2)?)? }),
        }
    }
}
