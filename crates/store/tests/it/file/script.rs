//! A fixed sequence of calls, and checks that must hold wherever it was interrupted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenure_core::invariant::{self, Step};
use tenure_core::store::{
    AuditKind, AuditRange, ClaimRequest, Claimed, Commit, Committed, Evict, Forgotten, OpenSession,
    Opened, Released, Replaced,
};
use tenure_core::{
    Document, Epoch, GroupName, Hold, InstanceId, Nonce, Note, Store, StoreError, Ttl, Version,
};

use crate::player::{LONG, Player, duty, reason};

/// One call.
#[derive(Clone, Debug)]
pub enum Do {
    Open,
    Claim(&'static [&'static str]),
    Commit(&'static str, &'static str),
    Release(&'static str),
    Forget(&'static str),
    Document(&'static str),
    Evict,
    Close,
}

const MANY: &[&str] = &[
    "m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9", "n0", "n1", "n2", "n3", "n4", "n5",
    "n6", "n7", "n8", "n9", "o0", "o1", "o2", "o3", "o4", "o5", "o6", "o7", "o8", "o9", "p0", "p1",
    "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7",
    "q8", "q9", "r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "s0", "s1", "s2", "s3",
];

/// Returns every writing call, in an order in which earlier calls matter.
pub fn all() -> Vec<Do> {
    use Do::*;
    let mut script = vec![
        Open,
        Claim(&["main", "p"]),
        Commit("main", "{\"last_update_id\": 1}"),
        Commit("main", "{\"last_update_id\": 2}"),
        Commit("p", "no JSON"),
        Release("main"),
        Claim(&["main"]),
        Commit("main", "{\"last_update_id\": 3}"),
        Document("shards=8"),
        Commit("p", "more"),
        Release("p"),
        Forget("p"),
        Claim(&["p"]),
        Commit("p", "{}"),
        Evict,
    ];
    // Enough audit entries to be moved to the audit file, twice.
    script.extend([Claim(MANY), Release("m0"), Claim(&["m0"]), Close]);
    script
}

/// State that a store must have after some of the calls.
#[derive(Clone, Debug, Default)]
struct Known {
    opened: bool,
    evicted: bool,
    held: BTreeSet<&'static str>,
    history: BTreeMap<&'static str, Vec<&'static str>>,
    epochs: BTreeMap<&'static str, u64>,
    floor: u64,
    document: Option<&'static str>,
    grants: Vec<(&'static str, u64)>,
}

impl Known {
    fn after(calls: &[Do]) -> Self {
        let mut known = Self::default();
        calls.iter().for_each(|call| known.learn(call));
        known
    }

    fn learn(&mut self, call: &Do) {
        match call {
            Do::Open => self.opened = true,
            Do::Claim(ids) => {
                for id in *ids {
                    let epoch = self.epochs.get(id).copied().unwrap_or(0).max(self.floor) + 1;
                    self.epochs.insert(id, epoch);
                    self.grants.push((id, epoch));
                    self.held.insert(id);
                }
            }
            Do::Commit(id, text) => self.history.entry(id).or_default().push(text),
            Do::Release(id) => drop(self.held.remove(id)),
            Do::Forget(id) => {
                self.history.remove(id);
                self.floor = self.floor.max(self.epochs.remove(id).unwrap_or(0));
            }
            Do::Document(text) => self.document = Some(text),
            Do::Evict => self.evicted = true,
            Do::Close => self.held.clear(),
        }
    }
}

fn wish() -> OpenSession {
    OpenSession {
        group: GroupName::new("g").unwrap(),
        instance: InstanceId::new("a").unwrap(),
        nonce: Nonce::from_entropy(1),
        ttl: Ttl::new(LONG).unwrap(),
        note: Note::default(),
    }
}

fn outcast() -> InstanceId {
    InstanceId::new("outcast").unwrap()
}

/// The caller of the script.
pub struct Caller {
    store: Arc<dyn Store>,
    holds: BTreeMap<&'static str, Hold>,
    known: Known,
}

impl Caller {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, holds: BTreeMap::new(), known: Known::default() }
    }

    /// Makes one call; an unexpected answer is a failure.
    pub async fn call(&mut self, call: &Do) -> Result<(), StoreError> {
        let session = wish().session();
        let mut after = self.known.clone();
        after.learn(call);
        match call {
            Do::Open => {
                let opened = self.store.open_session(&wish()).await?;
                assert_eq!(opened, Opened::Open(session));
            }
            Do::Claim(ids) => {
                let wants: Vec<_> = ids.iter().map(|id| ClaimRequest::new(duty(id))).collect();
                let claimed = self.store.claim(&session, &wants, &reason()).await?;
                for (id, claimed) in ids.iter().zip(claimed) {
                    let Claimed::Granted(hold) = claimed else { panic!("{id}: {claimed:?}") };
                    assert_eq!(hold.epoch.get(), after.epochs[id], "{id}");
                    self.holds.insert(id, hold);
                }
            }
            Do::Commit(id, text) => {
                let version = after.history[id].len() as u64;
                let commit = Commit {
                    hold: self.holds[id].clone(),
                    expected: Version::new(version - 1).unwrap(),
                    document: Document::new(*text).unwrap(),
                };
                let committed = self.store.commit(&session, &[commit]).await?.remove(0);
                assert_eq!(committed, Committed::Saved(Version::new(version).unwrap()));
            }
            Do::Release(id) => {
                let holds = [self.holds[id].clone()];
                let released = self.store.release(&session, &holds, &reason()).await?;
                assert_eq!(released, [Released::Freed]);
            }
            Do::Forget(id) => {
                let forgotten = self.store.forget(&[duty(id)], &reason()).await?;
                let floor = Epoch::new(after.floor).unwrap();
                assert_eq!(forgotten, [Forgotten::Forgotten { floor }]);
            }
            Do::Document(text) => {
                let document = Document::new(*text).unwrap();
                let group = &session.group;
                let replace = self.store.replace_group_document(group, Version::ZERO, &document);
                assert!(matches!(replace.await?, Replaced::Saved(_)));
            }
            Do::Evict => {
                let group = &session.group;
                self.store.evict(group, &outcast(), Evict::Now, &reason()).await?;
            }
            Do::Close => drop(self.store.close_session(&session, &reason()).await?),
        }
        self.known = after;
        Ok(())
    }
}

/// Checks a store that was reopened after `done` calls were answered and `begun` were begun:
/// answered calls took effect, others took effect wholly or not at all, and new calls work.
pub async fn check(store: &Arc<dyn Store>, script: &[Do], done: usize, begun: usize) {
    let (before, after) = (Known::after(&script[..done]), Known::after(&script[..begun]));
    let ids: BTreeSet<_> = after.epochs.keys().chain(before.epochs.keys()).copied().collect();
    for id in &ids {
        stored(store, id, [&before, &after]).await;
    }
    group(store, [&before, &after]).await;
    trail(store, [&before, &after]).await;
    goes_on(store, &ids, [&before, &after]).await;
}

async fn stored(store: &Arc<dyn Store>, id: &'static str, known: [&Known; 2]) {
    let history = store.history(&duty(id)).await.unwrap_or_else(|error| panic!("{id}: {error}"));
    let found: Vec<_> = history
        .iter()
        .rev()
        .map(|c| (c.version.get(), String::from_utf8(c.document.as_bytes().to_vec()).unwrap()))
        .collect();
    let expected = known.map(|known| {
        let texts = known.history.get(id).cloned().unwrap_or_default().into_iter();
        texts.enumerate().map(|(n, text)| (n as u64 + 1, text.to_owned())).collect::<Vec<_>>()
    });
    assert!(expected.contains(&found), "{id}: {found:?} is none of {expected:?}");
    let newest = store.load(&[duty(id)]).await.unwrap().remove(0);
    assert_eq!(newest.as_ref(), history.first(), "{id}");
}

async fn group(store: &Arc<dyn Store>, known: [&Known; 2]) {
    let name = wish().group;
    assert!(store.members(&name).await.unwrap().is_empty(), "sessions of before are over");
    let holders = store.holders(&name).await.unwrap();
    assert!(holders.iter().all(|holder| holder.holder.is_none()), "{holders:?}");
    let document = store.group_document(&name).await.unwrap().document;
    let expected = known.map(|known| known.document.unwrap_or("").as_bytes().to_vec());
    assert!(expected.contains(&document.as_bytes().to_vec()), "{document:?}");
    let opened = store.open_session(&wish()).await.unwrap();
    match known.map(|known| known.opened) {
        [true, _] => assert_eq!(opened, Opened::Spent),
        [false, false] => assert_eq!(opened, Opened::Open(wish().session())),
        _ => {}
    }
    let outcast = OpenSession { instance: outcast(), nonce: Nonce::from_entropy(2), ..wish() };
    let opened = store.open_session(&outcast).await.unwrap();
    match known.map(|known| known.evicted) {
        [true, _] => assert_eq!(opened, Opened::Evicted),
        [false, false] => assert_eq!(opened, Opened::Open(outcast.session())),
        _ => {}
    }
}

/// The trail has every answered grant, and none that was not made.
async fn trail(store: &Arc<dyn Store>, known: [&Known; 2]) {
    let entries = store.audit(&wish().group, AuditRange::first(10_000)).await.unwrap();
    assert!(entries.is_sorted_by(|a, b| a.seq < b.seq), "{entries:?}");
    let granted = entries.iter().filter(|entry| entry.kind == AuditKind::Granted);
    let granted: Vec<_> = granted
        .map(|e| (e.duty.as_ref().unwrap().id.as_str().to_owned(), e.epoch.unwrap().get()))
        .collect();
    let expected = known.map(|known| {
        known.grants.iter().map(|(id, epoch)| (id.to_string(), *epoch)).collect::<Vec<_>>()
    });
    assert!(expected.contains(&granted), "{granted:?} is none of {expected:?}");
}

/// No epoch is reused, and a new holder continues from the stored checkpoints.
async fn goes_on(store: &Arc<dyn Store>, ids: &BTreeSet<&'static str>, known: [&Known; 2]) {
    let player = Player::join(store, "next", LONG).await;
    let name = wish().instance;
    let mut steps = Vec::new();
    for (id, epoch) in &known[0].grants {
        let epoch = Epoch::new(*epoch).unwrap();
        steps.push(Step::Granted { duty: duty(id), epoch, instance: name.clone() });
    }
    for id in ids.iter().filter(|id| **id == "main" || **id == "p") {
        let hold = player.hold(id).await;
        let instance = hold.instance.clone();
        steps.push(Step::Granted { duty: duty(id), epoch: hold.epoch, instance });
        assert!(hold.epoch.get() > known[0].floor, "{hold:?}");
        let stored = store.load(&[duty(id)]).await.unwrap().remove(0);
        let version = stored.map_or(0, |stored| stored.version.get());
        let committed = player.commit(&hold, version, "{\"next\": true}").await;
        assert_eq!(committed, Committed::Saved(Version::new(version + 1).unwrap()));
    }
    assert_eq!(invariant::check(&steps), Ok(()));
}
