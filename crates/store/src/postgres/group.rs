//! Groups: members, holders and documents.

use tenure_core::store::{GroupDocument, Holder, Member, Replaced};
use tenure_core::{
    Document, DutyId, DutyKey, Epoch, GroupName, InstanceId, Nonce, Note, StoreResult, Version,
};
use tokio_postgres::Row;

use super::rows::{column, current_holder, micros};
use super::{Postgres, parameters};

impl Postgres {
    pub(super) async fn group_list(&self) -> StoreResult<Vec<GroupName>> {
        let rows = self.query(&self.statements.group_names, &[]).await?;
        rows.iter().map(|row| GroupName::new(column::<String>(row, 0)?)).collect()
    }

    pub(super) async fn group_members(&self, group: &GroupName) -> StoreResult<Vec<Member>> {
        let parameters = parameters![group.as_str() => TEXT];
        let rows = self.query(&self.statements.group_members, &parameters).await?;
        rows.iter().map(member).collect()
    }

    pub(super) async fn group_holders(&self, group: &GroupName) -> StoreResult<Vec<Holder>> {
        let parameters = parameters![group.as_str() => TEXT];
        let rows = self.query(&self.statements.group_holders, &parameters).await?;
        rows.iter().map(|row| holder(row, group)).collect()
    }

    pub(super) async fn document_read(&self, group: &GroupName) -> StoreResult<GroupDocument> {
        let parameters = parameters![group.as_str() => TEXT];
        let rows = self.query(&self.statements.group_document, &parameters).await?;
        let Some(row) = rows.first() else { return Ok(GroupDocument::default()) };
        let version = Version::from_i64(column(row, 0)?)?;
        Ok(GroupDocument { version, document: Document::new(column::<Vec<u8>>(row, 1)?)? })
    }

    pub(super) async fn document_replace(
        &self,
        group: &GroupName,
        expected: Version,
        document: &Document,
    ) -> StoreResult<Replaced> {
        let parameters = parameters![
            group.as_str() => TEXT, expected.as_i64() => INT8, document.as_bytes() => BYTEA
        ];
        let rows = self.query(&self.statements.group_replace_document, &parameters).await?;
        match rows.first() {
            Some(row) => Ok(Replaced::Saved(Version::from_i64(column(row, 0)?)?)),
            None => Ok(Replaced::Conflict { stored: self.document_read(group).await?.version }),
        }
    }
}

fn member(row: &Row) -> StoreResult<Member> {
    Ok(Member {
        instance: InstanceId::new(column::<String>(row, 0)?)?,
        nonce: Some(Nonce::parse(column(row, 1)?)?),
        note: Note::from_bytes(column(row, 2)?)?,
        evicted: column(row, 3)?,
        remaining: micros(column(row, 4)?),
    })
}

fn holder(row: &Row, group: &GroupName) -> StoreResult<Holder> {
    let instance: Option<String> = column(row, 2)?;
    let remaining: Option<i64> = column(row, 3)?;
    let holder =
        instance.zip(remaining).map(|(instance, left)| current_holder(instance, micros(left)));
    let id = DutyId::new(column::<String>(row, 0)?)?;
    Ok(Holder {
        duty: DutyKey { group: group.clone(), id },
        epoch: Some(Epoch::from_i64(column(row, 1)?)?),
        holder: holder.transpose()?,
    })
}
