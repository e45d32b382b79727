//! Checkpoints.

use tenure_core::store::{Checkpoint, Commit, Committed};
use tenure_core::{
    Code, Document, DutyKey, Epoch, InstanceId, Session, StoreError, StoreResult, Version,
};
use tokio_postgres::Row;

use super::rows::{column, damaged, index};
use super::{Postgres, complete, epoch_for, parameters};

impl Postgres {
    pub(super) async fn checkpoint_load(
        &self,
        duties: &[DutyKey],
    ) -> StoreResult<Vec<Option<Checkpoint>>> {
        let groups: Vec<&str> = duties.iter().map(|duty| duty.group.as_str()).collect();
        let ids: Vec<&str> = duties.iter().map(|duty| duty.id.as_str()).collect();
        let parameters = parameters![groups => TEXT_ARRAY, ids => TEXT_ARRAY];
        let mut answers = vec![None; duties.len()];
        for row in self.query(&self.statements.checkpoint_load, &parameters).await? {
            if let Some(answer) = answers.get_mut(index(&row)?) {
                *answer = Some(checkpoint(&row)?);
            }
        }
        Ok(answers)
    }

    pub(super) async fn checkpoint_commit(
        &self,
        session: &Session,
        commits: &[Commit],
    ) -> StoreResult<Vec<Committed>> {
        if let [commit] = commits {
            return Ok(vec![self.checkpoint_commit_one(session, commit).await?]);
        }
        let duties: Vec<&str> = commits.iter().map(|c| c.hold.duty.id.as_str()).collect();
        let epochs: Vec<i64> = commits.iter().map(|c| epoch_for(session, &c.hold)).collect();
        let expected: Vec<i64> = commits.iter().map(|c| c.expected.as_i64()).collect();
        let documents: Vec<&[u8]> = commits.iter().map(|c| c.document.as_bytes()).collect();
        let parameters = parameters![
            of session, duties => TEXT_ARRAY, epochs => INT8_ARRAY,
            expected => INT8_ARRAY, documents => BYTEA_ARRAY
        ];
        let rows = self.query(&self.statements.checkpoint_commit, &parameters).await?;
        let read = |row| committed(row).map_err(StoreError::or_happened);
        complete(rows, commits.len())?.iter().map(read).collect()
    }

    pub(super) async fn checkpoint_history(&self, duty: &DutyKey) -> StoreResult<Vec<Checkpoint>> {
        let parameters = parameters![duty.group.as_str() => TEXT, duty.id.as_str() => TEXT];
        let rows = self.query(&self.statements.checkpoint_history, &parameters).await?;
        rows.iter().map(checkpoint).collect()
    }

    /// Commits one checkpoint with one statement; a second one only finds out why it was refused.
    async fn checkpoint_commit_one(
        &self,
        session: &Session,
        commit: &Commit,
    ) -> StoreResult<Committed> {
        let (hold, expected) = (&commit.hold, commit.expected.as_i64());
        let parameters = parameters![
            of session, hold.duty.id.as_str() => TEXT, epoch_for(session, hold) => INT8,
            commit.document.as_bytes() => BYTEA, expected => INT8
        ];
        let rows = self.query(&self.statements.checkpoint_commit_one, &parameters).await?;
        if let Some(row) = rows.first() {
            return Ok(Committed::Saved(Version::from_i64(column(row, 0)?)?));
        }
        let rows = self.query(&self.statements.checkpoint_commit_refused, &parameters[..5]).await?;
        let row = rows
            .first()
            .ok_or_else(|| StoreError::refused(Code::Failed, "the query returned no row"))?;
        let (stands, stored): (bool, i64) = (column(row, 0)?, column(row, 1)?);
        match stands {
            true if stored != expected => {
                Ok(Committed::Conflict { stored: Version::from_i64(stored)? })
            }
            // Another commit under the same hold came in between, so the version matches now.
            true => Err(StoreError::refused(
                Code::Busy,
                "another commit under the same hold came first",
            )),
            false => Ok(Committed::Fenced { newest: Epoch::from_i64(column(row, 2)?)? }),
        }
    }
}

fn committed(row: &Row) -> StoreResult<Committed> {
    let number: i64 = column(row, 2)?;
    match column::<&str>(row, 1)? {
        "saved" => Ok(Committed::Saved(Version::from_i64(number)?)),
        "fenced" => Ok(Committed::Fenced { newest: Epoch::from_i64(number)? }),
        "conflict" => Ok(Committed::Conflict { stored: Version::from_i64(number)? }),
        other => Err(damaged(format!("checkpoint_commit returned {other:?}"))),
    }
}

fn checkpoint(row: &Row) -> StoreResult<Checkpoint> {
    Ok(Checkpoint {
        version: Version::from_i64(column(row, 1)?)?,
        epoch: Epoch::from_i64(column(row, 2)?)?,
        instance: InstanceId::new(column::<String>(row, 3)?)?,
        document: Document::from_store(column::<Vec<u8>>(row, 4)?)?,
        unix_ms: column::<i64>(row, 5)?.max(0) as u64,
    })
}
