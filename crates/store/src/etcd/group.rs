//! Groups: members, holders and documents.

use std::collections::BTreeMap;

use tenure_core::store::{CurrentHolder, GroupDocument, Holder, Member, Replaced};
use tenure_core::{Document, GroupName, InstanceId, Nonce, Note, StoreResult, Version};
use tenure_etcd::{Compare, KeyValue, Txn, TxnOp};

use super::call::EtcdCall;
use super::key::{self, FenceRecord};
use super::read::{below, found, get};
use super::{PAGE_KEYS, absent, error};

/// Sessions by instance, with their leases.
type LiveSessions = BTreeMap<InstanceId, (Nonce, i64)>;

fn sessions(keys: &[KeyValue], folder: &str) -> StoreResult<LiveSessions> {
    let read = |found: &KeyValue| {
        let instance = InstanceId::unescape(key::name(&found.key, folder)?)?;
        Ok((instance, (key::parse_nonce(&found.value)?, found.lease)))
    };
    keys.iter().map(read).collect()
}

impl EtcdCall<'_> {
    pub(super) async fn group_list(&self) -> StoreResult<Vec<GroupName>> {
        let folder = self.keys.index();
        let listed = self.cluster.range(&folder, PAGE_KEYS).await?;
        let mut groups = listed
            .iter()
            .map(|found| GroupName::unescape(key::name(&found.key, &folder)?))
            .collect::<Result<Vec<_>, _>>()?;
        groups.sort();
        Ok(groups)
    }

    pub(super) async fn group_members(&self, group: &GroupName) -> StoreResult<Vec<Member>> {
        let (folder, noted) = (self.keys.sessions(group), self.keys.notes(group));
        let evicted = self.keys.barred_all(group);
        let [live, notes, barred] =
            self.cluster.read([below(&folder), below(&noted), below(&evicted)]).await?;
        let live = sessions(&live, &folder)?;
        let left =
            self.cluster.remaining(&live.values().map(|(_, lease)| *lease).collect()).await?;
        let mut written = BTreeMap::new();
        for note in notes {
            let name = key::name(&note.key, &noted)?.to_owned();
            written.insert(name, note.value);
        }
        let mut members = Vec::with_capacity(live.len());
        for (instance, (nonce, lease)) in live {
            // A lease that has ended since the read has ended its session, too.
            let Some(remaining) = left.get(&lease).copied() else { continue };
            let name = instance.escaped().into_owned();
            let is_it = |found: &KeyValue| key::name(&found.key, &evicted).ok() == Some(&*name);
            members.push(Member {
                nonce: Some(nonce),
                note: Note::from_bytes(written.remove(&name).unwrap_or_default())?,
                remaining,
                evicted: barred.iter().any(is_it),
                instance,
            });
        }
        Ok(members)
    }

    pub(super) async fn group_holders(&self, group: &GroupName) -> StoreResult<Vec<Holder>> {
        let (folder, fences) = (self.keys.sessions(group), self.keys.fences(group));
        // Fences first: a session that has ended by then cannot reappear.
        let granted = self.cluster.range(&fences, PAGE_KEYS).await?;
        let live = sessions(&self.cluster.range(&folder, PAGE_KEYS).await?, &folder)?;
        let left =
            self.cluster.remaining(&live.values().map(|(_, lease)| *lease).collect()).await?;
        let mut holders = Vec::with_capacity(granted.len());
        for found in granted {
            let fence = FenceRecord::parse(&found.value)?;
            let session = live.get(&fence.instance).filter(|(nonce, _)| *nonce == fence.nonce);
            let remaining = session.and_then(|(_, lease)| left.get(lease).copied());
            let holder = remaining
                .filter(|_| fence.held)
                .map(|remaining| CurrentHolder { instance: fence.instance.clone(), remaining });
            let duty = key::duty_at(group, &found.key, &fences)?;
            holders.push(Holder { duty, epoch: Some(fence.epoch), holder });
        }
        holders.sort_by(|left, right| left.duty.cmp(&right.duty));
        Ok(holders)
    }

    pub(super) async fn document_read(&self, group: &GroupName) -> StoreResult<GroupDocument> {
        let [stored] = self.cluster.read([get(&self.keys.document(group))]).await?;
        let Some(stored) = stored.into_iter().next() else { return Ok(GroupDocument::default()) };
        let version = Version::from_i64(stored.version)?;
        Ok(GroupDocument { version, document: Document::from_store(stored.value)? })
    }

    pub(super) async fn document_replace(
        &self,
        group: &GroupName,
        expected: Version,
        document: &Document,
    ) -> StoreResult<Replaced> {
        let (name, index) = (self.keys.document(group), self.keys.index_of(group));
        let listed = Txn::new().when([absent(&index)]).and_then([TxnOp::put(index, Vec::new())]);
        let fits = Compare::version(name.as_str(), expected.as_i64());
        let put = TxnOp::put(name.as_str(), document.as_bytes());
        let txn = Txn::new().when([fits]).and_then([put, TxnOp::txn(listed)]).or_else([get(&name)]);
        let version = expected.next().unwrap_or(Version::MAX_VALUE);
        let done = self.commit(txn).await?;
        if done.response.succeeded {
            return Ok(Replaced::Saved(version));
        }
        let stored = done.response.responses.into_iter().next().map(found);
        let stored = stored.unwrap_or_default().into_iter().next();
        let number = Version::from_i64(stored.as_ref().map_or(0, |found| found.version))?;
        if done.unsure && number > expected {
            // An earlier attempt may have written it: the stored value decides, unless overwritten
            // since.
            let ours = stored.is_some_and(|stored| stored.value == document.as_bytes());
            return match ours && number == version {
                true => Ok(Replaced::Saved(version)),
                false => Err(error::lost(&self.cluster.address())),
            };
        }
        Ok(Replaced::Conflict { stored: number })
    }
}
