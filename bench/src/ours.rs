//! Tenure's side of every comparison, the same for all stores.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use tenure_core::store::{
    ClaimRequest, Claimed, Commit, Committed, HoldFate, KeptAlive, OpenSession, Opened,
};
use tenure_core::{
    Document, DutyId, DutyKey, GroupName, Hold, InstanceId, Nonce, Note, Reason, Session, Store,
    Ttl, Version,
};
use tenure_store::{IfAbsent, StoreUrl};

use crate::measure::timed;

/// A document of the usual size of a cursor.
pub const DOCUMENT: [u8; 100] = [b'x'; 100];

/// Member with as many holds as the row requires.
pub struct Ours {
    store: Arc<dyn Store>,
    session: Session,
    wants: Vec<ClaimRequest>,
    holds: Vec<Hold>,
    version: Version,
    reason: Reason,
}

impl Ours {
    pub async fn new(url: &str, holds: usize) -> Result<Self> {
        let store = StoreUrl::parse(url)?.open(IfAbsent::Create, holds as u128 + 1).await?;
        let group = GroupName::new(format!("bench{holds}"))?;
        let open = OpenSession {
            instance: InstanceId::new("bench-1-00000000")?,
            nonce: Nonce::from_entropy(holds as u128 + 1),
            ttl: Ttl::new(Duration::from_secs(3600))?,
            note: Note::default(),
            group: group.clone(),
        };
        ensure!(store.open_session(&open).await? == Opened::Open(open.session()));
        let want = |n| {
            let id = DutyId::new(format!("duty-{n}"))?;
            Ok(ClaimRequest::new(DutyKey { group: group.clone(), id }))
        };
        let wants = (0..holds).map(want).collect::<Result<_>>()?;
        let reason = Reason::new("bench")?;
        let (session, version) = (open.session(), Version::ZERO);
        Ok(Self { store, session, wants, holds: Vec::new(), version, reason })
    }

    /// Claims all duties, which must be free.
    pub async fn claim(&mut self) -> Result<Duration> {
        let call = self.store.claim(&self.session, &self.wants, &self.reason);
        let (took, claimed) = timed(async { Ok(call.await?) }).await?;
        self.holds = claimed
            .into_iter()
            .filter_map(|claimed| match claimed {
                Claimed::Granted(hold) => Some(hold),
                _ => None,
            })
            .collect();
        ensure!(self.holds.len() == self.wants.len(), "not everything was granted");
        Ok(took)
    }

    pub async fn release(&mut self) -> Result<()> {
        self.store.release(&self.session, &self.holds, &self.reason).await?;
        Ok(())
    }

    /// Sends a keep-alive. The first one after a claim also confirms the new holds.
    pub async fn keep_alive(&mut self) -> Result<Duration> {
        let call = self.store.keep_alive(&self.session, None, &self.holds);
        let (took, kept) = timed(async { Ok(call.await?) }).await?;
        let KeptAlive::Kept { holds, mark } = kept else { anyhow::bail!("the session ended") };
        ensure!(holds.iter().all(|fate| *fate == HoldFate::Kept), "a hold was lost");
        self.holds.iter_mut().for_each(|hold| hold.mark = mark);
        Ok(took)
    }

    pub async fn commit(&mut self) -> Result<Duration> {
        let document = Document::new(DOCUMENT)?;
        let commit = |hold: &Hold| Commit {
            hold: hold.clone(),
            expected: self.version,
            document: document.clone(),
        };
        let commits: Vec<_> = self.holds.iter().map(commit).collect();
        let call = self.store.commit(&self.session, &commits);
        let (took, committed) = timed(async { Ok(call.await?) }).await?;
        self.version = self.version.next()?;
        let saved = Committed::Saved(self.version);
        ensure!(committed.iter().all(|answer| *answer == saved), "a commit was refused");
        Ok(took)
    }
}
