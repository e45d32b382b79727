//! Groups: their list and their documents.

use tenure_core::store::{GroupDocument, Replaced};
use tenure_core::{Document, GroupName, StoreResult, Version};

use super::Redis;
use super::script::Script;

impl Redis {
    pub(super) async fn group_list(&self) -> StoreResult<Vec<GroupName>> {
        let reply = self.ask(&self.data, |incarnation| {
            Script::GroupList.call(2).arg(self.marker()).arg(self.groups_key()).arg(incarnation)
        });
        let names = reply.await?.texts()?;
        let mut groups: Vec<GroupName> =
            names.iter().map(|name| GroupName::unescape(name)).collect::<Result<_, _>>()?;
        groups.sort();
        Ok(groups)
    }

    pub(super) async fn document_read(&self, group: &GroupName) -> StoreResult<GroupDocument> {
        let reply = self
            .ask(&self.data, |incarnation| self.script(Script::DocumentRead, incarnation, group));
        let mut reply = reply.await?;
        if reply.is_done() {
            return Ok(GroupDocument::default());
        }
        Ok(GroupDocument {
            version: Version::new(reply.number()?)?,
            document: Document::new(reply.bytes()?)?,
        })
    }

    pub(super) async fn document_replace(
        &self,
        group: &GroupName,
        expected: Version,
        document: &Document,
    ) -> StoreResult<Replaced> {
        let reply = self.ask(&self.data, |incarnation| {
            let call = self.script_with_index(Script::DocumentReplace, incarnation, group);
            call.arg(expected.get()).arg(document.as_bytes())
        });
        let mut reply = reply.await?;
        let (saved, version) = (reply.flag()?, Version::new(reply.number()?)?);
        Ok(if saved { Replaced::Saved(version) } else { Replaced::Conflict { stored: version } })
    }
}
