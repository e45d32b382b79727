//! Stores that version 0.1 has written, used by the current code. Everything in them is still
//! there, and their duties, epochs, versions and limits continue from where they were.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tenure_core::engine::GroupConfig;
use tenure_core::roster::Pin;
use tenure_core::store::{
    Adopt, AuditEntry, AuditKind, AuditRange, Checkpoint, ClaimRequest, Claimed, Committed,
    Forgotten, KeptAlive, OpenSession, Opened, Released, Replaced, Retention,
};
use tenure_core::{
    Code, DutyKey, Epoch, GroupName, Hold, Mark, Nonce, Session, Store, Ttl, Version,
};
use tenure_store::signing::{Keyring, SignatureVerdict, Signing, verify};
use tenure_store::{IfAbsent, StoreUrl};
use testkit::{TEST_POSTGRES, old, service};

use crate::player::{LONG, Player, reason, wish};

/// The nonce of the last holder of a duty; everything else about it was printed.
type OldNonce = (&'static str, &'static str);

/// The history of a duty, newest first: version, epoch and writer.
type Ring = Vec<(u64, Epoch, String)>;

struct OldStore {
    /// Folder with what version 0.1 printed about it.
    kind: &'static str,
    url: String,
    nonces: &'static [OldNonce],
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tenure.db");
    old::sqlite(&path).unwrap();
    let nonces = &[
        ("telegram/bot-42", "cb23806d-5058-427e-82b9-46f6f992e193"),
        ("poll/a", "72238f36-d86b-4044-ae89-62d781845213"),
    ];
    works(&OldStore { kind: "sqlite", url: format!("sqlite:{}", path.display()), nonces }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres() {
    let Some(server) = service(TEST_POSTGRES) else { return };
    let url = old::postgres(&server).unwrap();
    let nonces = &[
        ("telegram/bot-42", "6d5303d4-3399-4b4c-bc5f-4a6477e98ebd"),
        ("poll/a", "51caea24-5ec5-4cd9-adc7-6d4a69f0ba9b"),
    ];
    works(&OldStore { kind: "postgres", url, nonces }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis() {
    let server = old::redis().unwrap();
    let nonces = &[
        ("telegram/bot-42", "a1acc8b8-2dbd-44af-ab15-1975292e4647"),
        ("poll/a", "4212d7cc-65e6-40f3-91a0-bce92bbe614a"),
    ];
    works(&OldStore { kind: "redis", url: server.url(), nonces }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd() {
    let server = old::etcd().unwrap();
    let nonces = &[
        ("telegram/bot-42", "31c8cc91-7657-4274-95bd-c79a1b7b98ed"),
        ("poll/a", "e19c244e-b4b3-4026-b55b-6f574dcc6cf4"),
    ];
    works(&OldStore { kind: "etcd", url: server.url(), nonces }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cursor_file() {
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().join("files");
    old::cursor_files(&files).unwrap();
    let url = |name: &str| format!("file:{}", files.join(name).display());
    let nonces = &[("telegram/bot-42", "c5005755-7417-43b0-bed3-3b7fb8dae661")];
    let plain = OldStore { kind: "file", url: url("plain.json"), nonces };
    works(&plain).await;
    let signed = OldStore { kind: "file", url: url("signed.json"), nonces: &[] };
    signatures_continue(&signed).await;
    let moved = OldStore { kind: "file", url: url("moved.json"), nonces: &[] };
    assert_eq!(moved.loading_moved().await, Code::Moved);
    let first = moved.open().await;
    // It has one user at a time.
    let url = StoreUrl::parse(&moved.url).unwrap();
    let second = url.open(IfAbsent::Refuse, 7).await.unwrap_err();
    assert_eq!(second.code(), Code::InUse);
    drop(first);
}

impl OldStore {
    async fn open(&self) -> Arc<dyn Store> {
        let url = StoreUrl::parse(&self.url).unwrap();
        url.open_bare(IfAbsent::Refuse, 7).await.unwrap()
    }

    async fn open_signed(&self, key: &str) -> Arc<dyn Store> {
        let url = StoreUrl::parse(&self.url).unwrap();
        url.open_signed(IfAbsent::Refuse, 7, Signing::Require(keys(key))).await.unwrap()
    }

    /// Returns the error of loading the checkpoint that was moved to another store.
    async fn loading_moved(&self) -> Code {
        let url = StoreUrl::parse(&self.url).unwrap();
        let store = url.open(IfAbsent::Refuse, 7).await.unwrap();
        store.load(&["telegram/bot-43".parse().unwrap()]).await.unwrap_err().code()
    }

    fn is_shared(&self) -> bool {
        self.kind != "file"
    }

    /// Returns what a command printed.
    fn printed(&self, name: &str) -> Value {
        let path = old::path(&format!("{}/{name}.json", self.kind));
        let text = std::fs::read_to_string(path).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["stdout"].take()
    }

    /// Returns the duties and their epochs, without those of the switchboard.
    fn duties(&self) -> Vec<(DutyKey, Epoch)> {
        let printed = self.printed("ls");
        let groups = printed["groups"].as_array().unwrap().iter();
        let duties = groups.flat_map(|group| group["duties"].as_array().unwrap());
        let duties = duties.map(|duty| (key(&duty["duty"]), epoch(&duty["epoch"])));
        duties.filter(|(duty, _)| duty.group.as_str() != "tenure-switchboard").collect()
    }

    /// Returns all checkpoints of a duty, newest first: version, epoch and writer.
    fn checkpoints(&self, duty: &DutyKey) -> Ring {
        let printed = self.printed(if self.is_shared() { "verify" } else { "history" });
        let all = printed["checkpoints"].as_array().unwrap().iter();
        let of_duty = all.filter(|one| key(&one["duty"]) == *duty);
        let read = |one: &Value| {
            let writer = one["instance"].as_str().unwrap().to_owned();
            (one["version"].as_u64().unwrap(), epoch(&one["epoch"]), writer)
        };
        of_duty.map(read).collect()
    }

    /// Returns the last holds of the old version, with their sessions.
    fn holds(&self, trail: &[AuditEntry]) -> Vec<(Session, Hold)> {
        let hold = |(duty, nonce): &OldNonce| {
            let duty: DutyKey = duty.parse().unwrap();
            let granted = trail.iter().rev().find(|entry| {
                entry.kind == AuditKind::Granted && entry.duty.as_ref() == Some(&duty)
            });
            let instance = granted.unwrap().instance.clone();
            let nonce = Nonce::parse(nonce).unwrap();
            let epoch = self.duties().into_iter().find(|it| it.0 == duty).unwrap().1;
            let (group, ttl) = (duty.group.clone(), Ttl::new(LONG).unwrap());
            let session = Session { group, instance: instance.clone(), nonce, ttl };
            (session, Hold { duty, epoch, instance, nonce, mark: Mark(0) })
        };
        self.nonces.iter().map(hold).collect()
    }
}

fn keys(byte: &str) -> Keyring {
    Keyring::parse(&format!("k1 sign {}", byte.repeat(32))).unwrap()
}

fn key(text: &Value) -> DutyKey {
    text.as_str().unwrap().parse().unwrap()
}

fn epoch(number: &Value) -> Epoch {
    Epoch::new(number.as_u64().unwrap()).unwrap()
}

fn group(name: &str) -> GroupName {
    GroupName::new(name).unwrap()
}

async fn join(store: &Arc<dyn Store>, group: &GroupName, ttl: Duration) -> Player {
    let wish = OpenSession { group: group.clone(), ..wish("new", ttl) };
    assert_eq!(store.open_session(&wish).await.unwrap(), Opened::Open(wish.session()));
    Player { store: store.clone(), session: wish.session() }
}

async fn claim(player: &Player, duty: &DutyKey) -> Claimed {
    let want = ClaimRequest::new(duty.clone());
    player.store.claim(&player.session, &[want], &reason()).await.unwrap().remove(0)
}

async fn hold(player: &Player, duty: &DutyKey) -> Hold {
    match claim(player, duty).await {
        Claimed::Granted(hold) => hold,
        other => panic!("{duty} was not granted but {other:?}"),
    }
}

async fn history(store: &Arc<dyn Store>, duty: &DutyKey) -> Ring {
    let seen = |it: Checkpoint| (it.version.get(), it.epoch, it.instance.to_string());
    store.history(duty).await.unwrap().into_iter().map(seen).collect()
}

async fn newest(store: &Arc<dyn Store>, duty: &DutyKey) -> Option<Checkpoint> {
    store.load(std::slice::from_ref(duty)).await.unwrap().remove(0)
}

async fn trail(store: &Arc<dyn Store>, group: &GroupName) -> Vec<AuditEntry> {
    store.audit(group, AuditRange::first(10_000)).await.unwrap()
}

async fn works(old: &OldStore) {
    // Processes of the new version start at the same time.
    let store = match old.is_shared() {
        true => tokio::join!(old.open(), old.open(), old.open()).0,
        false => old.open().await,
    };
    everything_is_there(old, &store).await;
    let mut before = trail(&store, &group("telegram")).await;
    before.extend(trail(&store, &group("poll")).await);
    let holds = old.holds(&before);
    assert_eq!(holds.len(), old.nonces.len());
    old_holders_are_fenced(&store, &holds).await;
    if old.is_shared() {
        signatures_continue(old).await;
        directives_continue(&store).await;
    }
    let newest = duties_continue(old, &store).await;
    old_holders_are_fenced(&store, &holds).await;
    // It stays as it is when it is opened again.
    drop(store);
    let store = old.open().await;
    for (duty, epoch, ring) in &newest {
        assert_eq!(last_epoch(&store, duty).await, *epoch);
        assert_eq!(history(&store, duty).await, *ring);
    }
    retention_applies(&store, &newest).await;
    adopting_continues_above(&store, &newest).await;
    drop(store);
    a_forgotten_duty_leaves_a_floor(old).await;
}

/// Returns the newest epoch of a duty that nobody holds.
async fn last_epoch(store: &Arc<dyn Store>, duty: &DutyKey) -> Epoch {
    let holders = store.holders(&duty.group).await.unwrap();
    let seen = holders.into_iter().find(|it| it.duty == *duty).unwrap();
    assert_eq!(seen.holder, None, "{duty}");
    seen.epoch.unwrap()
}

/// Compares the content with what version 0.1 printed.
async fn everything_is_there(old: &OldStore, store: &Arc<dyn Store>) {
    let duties = old.duties();
    assert_eq!(duties.len(), if old.is_shared() { 6 } else { 1 });
    for (duty, epoch) in &duties {
        assert_eq!(last_epoch(store, duty).await, *epoch, "{duty}");
        let ring = history(store, duty).await;
        assert_eq!(ring, old.checkpoints(duty), "{duty}");
        let first = newest(store, duty).await.map(|it| it.version.get());
        assert_eq!(first, ring.first().map(|it| it.0), "{duty}");
        // The trail has each grant once, in order; the last one is the stored epoch.
        let entries = trail(store, &duty.group).await;
        assert!(entries.is_sorted_by(|a, b| a.seq < b.seq), "{entries:?}");
        let own = entries.iter().filter(|entry| entry.duty.as_ref() == Some(duty));
        let grants = own.filter(|entry| entry.kind == AuditKind::Granted);
        let grants: Vec<_> = grants.filter_map(|entry| entry.epoch).collect();
        assert!(grants.is_sorted_by(|a, b| a < b), "{duty}: {grants:?}");
        assert_eq!(grants.last(), Some(epoch), "{duty}");
        assert!(store.members(&duty.group).await.unwrap().is_empty());
    }
    assert_eq!(store.retention().await.unwrap(), Retention::default());
}

/// A holder that the old version has left behind changes nothing, whoever holds the duty now.
async fn old_holders_are_fenced(store: &Arc<dyn Store>, holds: &[(Session, Hold)]) {
    for (session, hold) in holds {
        let late = Player { store: store.clone(), session: session.clone() };
        let before = newest(store, &hold.duty).await;
        for expected in [0, before.as_ref().map_or(0, |it| it.version.get())] {
            let committed = late.commit(hold, expected, "{\"late\":1}").await;
            assert!(
                matches!(committed, Committed::Fenced { newest } if newest >= hold.epoch),
                "{hold:?}: {committed:?}"
            );
        }
        assert_eq!(late.keep_alive(std::slice::from_ref(hold)).await, KeptAlive::Ended);
        let holds = std::slice::from_ref(hold);
        let released = store.release(session, holds, &reason()).await.unwrap();
        assert_ne!(released, [Released::Freed]);
        assert_eq!(claim(&late, &hold.duty).await, Claimed::SessionEnded);
        assert_eq!(newest(store, &hold.duty).await, before);
    }
}

/// Claims every duty, commits on top of what is stored, and hands it over by release or expiry.
/// Returns the last epoch and the whole history of each.
async fn duties_continue(old: &OldStore, store: &Arc<dyn Store>) -> Vec<(DutyKey, Epoch, Ring)> {
    let mut newest = Vec::new();
    for (index, (duty, _)) in old.duties().into_iter().enumerate() {
        let (epoch, ring) = (last_epoch(store, &duty).await, history(store, &duty).await);
        let stored = ring.first().map_or(0, |it| it.0);
        let a = join(store, &duty.group, LONG).await;
        let first = hold(&a, &duty).await;
        assert!(first.epoch > epoch, "{duty}: {} after {epoch}", first.epoch);
        if store.abilities().dense_epochs {
            assert_eq!(first.epoch, epoch.next().unwrap());
        }
        let conflict = a.commit(&first, stored + 1, "{}").await;
        assert_eq!(conflict, Committed::Conflict { stored: Version::new(stored).unwrap() });
        let saved = Committed::Saved(Version::new(stored + 1).unwrap());
        assert_eq!(a.commit(&first, stored, "{\"n\":1}").await, saved);
        a.release(&first).await;
        // Taken over: the first duty after an expiry, for which etcd takes seconds.
        let ttl = if index == 0 { Duration::from_millis(300) } else { LONG };
        let b = join(store, &duty.group, ttl).await;
        let second = hold(&b, &duty).await;
        if index > 0 {
            b.release(&second).await;
        }
        let c = join(store, &duty.group, LONG).await;
        let third = claim_until_granted(&c, &duty).await;
        assert!(first.epoch < second.epoch && second.epoch < third.epoch);
        let late = b.commit(&second, stored + 1, "{}").await;
        assert_eq!(late, Committed::Fenced { newest: third.epoch });
        let saved = Committed::Saved(Version::new(stored + 2).unwrap());
        assert_eq!(c.commit(&third, stored + 1, "{\"n\":2}").await, saved);
        let seen = history(store, &duty).await;
        let name = |player: &Player| player.session.instance.to_string();
        let mut expected =
            vec![(stored + 2, third.epoch, name(&c)), (stored + 1, first.epoch, name(&a))];
        expected.extend(ring);
        assert_eq!(seen, expected, "{duty}");
        for player in [a, c] {
            store.close_session(&player.session, &reason()).await.unwrap();
        }
        newest.push((duty, third.epoch, seen));
    }
    newest
}

/// Each attempt waits for a tick, so that the loop does not spin.
async fn claim_until_granted(player: &Player, duty: &DutyKey) -> Hold {
    let mut tick = tokio::time::interval(Duration::from_millis(20));
    loop {
        match claim(player, duty).await {
            Claimed::Granted(hold) => return hold,
            Claimed::HeldBy(_) => tick.tick().await,
            other => panic!("{duty}: {other:?}"),
        };
    }
}

/// The signed checkpoint is valid for its key alone, and the next one continues its chain. One that
/// was moved away stays moved.
async fn signatures_continue(old: &OldStore) {
    let duty: DutyKey = "telegram/bot-44".parse().unwrap();
    let stranger = old.open_signed("07").await;
    let refused = stranger.load(std::slice::from_ref(&duty)).await.unwrap_err();
    assert_eq!(refused.code(), Code::BadSignature);
    drop(stranger);
    let store = old.open_signed("5e").await;
    let first = newest(&store, &duty).await.unwrap();
    assert_eq!(first.document.as_bytes(), b"{\"last_update_id\":99}");
    let player = join(&store, &duty.group, LONG).await;
    let held = hold(&player, &duty).await;
    let second = player.commit(&held, first.version.get(), "{\"last_update_id\":100}").await;
    assert_eq!(second, Committed::Saved(first.version.next().unwrap()));
    if old.is_shared() {
        assert_eq!(old.loading_moved().await, Code::Moved);
    }
    store.close_session(&player.session, &reason()).await.unwrap();
    drop((player, store));
    let bare = old.open().await;
    let (newest, ring) = (newest(&bare, &duty).await, bare.history(&duty).await.unwrap());
    let verdicts = verify(&keys("5e"), &duty, newest.as_ref(), &ring);
    let verdicts: Vec<_> = verdicts.into_iter().map(|(_, it)| it.verdict).collect();
    assert_eq!(verdicts.len(), 2 + usize::from(newest.as_ref() != ring.first()));
    assert!(verdicts.iter().all(|it| *it == SignatureVerdict::Good), "{verdicts:?}");
}

async fn directives_continue(store: &Arc<dyn Store>) {
    let poll = group("poll");
    let stored = store.group_document(&poll).await.unwrap();
    let mut config = GroupConfig::read(&stored).unwrap();
    let duty = |id: &str| tenure_core::DutyId::new(id).unwrap();
    assert!(matches!(&config.pins[&duty("a")], Pin::Zone(zone) if zone.as_str() == "eu"));
    assert!(matches!(&config.pins[&duty("b")], Pin::Name(name) if name.as_str() == "two"));
    assert!(config.pauses(&duty("b")) && !config.pauses(&duty("a")));
    assert_eq!((config.cordoned.len(), config.weights.values().copied().max()), (1, Some(5)));
    config.all_paused = true;
    let document = config.document().unwrap();
    let stale = Version::new(stored.version.get() - 1).unwrap();
    let conflict = store.replace_group_document(&poll, stale, &document).await.unwrap();
    assert_eq!(conflict, Replaced::Conflict { stored: stored.version });
    let replaced = store.replace_group_document(&poll, stored.version, &document).await.unwrap();
    assert!(matches!(replaced, Replaced::Saved(version) if version > stored.version));
    let read = GroupConfig::read(&store.group_document(&poll).await.unwrap()).unwrap();
    assert_eq!(read, config);
}

/// Histories and trails of the old version are cut to what an operator sets.
async fn retention_applies(store: &Arc<dyn Store>, known: &[(DutyKey, Epoch, Ring)]) {
    store.retain(Retention { history_slots: 2, audit_kept: 1_000 }).await.unwrap();
    for (duty, _, ring) in known {
        assert_eq!(history(store, duty).await, ring[..2.min(ring.len())], "{duty}");
    }
    let telegram = group("telegram");
    let oldest = trail(store, &telegram).await.remove(0);
    let player = join(store, &telegram, LONG).await;
    let new = |n| ClaimRequest::new(DutyKey::new("telegram", format!("new{n}")).unwrap());
    // A trail may exceed its limit by a quarter.
    let wants: Vec<_> = (0..700).map(new).collect();
    let granted = store.claim(&player.session, &wants, &reason()).await.unwrap();
    assert!(granted.iter().all(|it| matches!(it, Claimed::Granted(_))));
    store.close_session(&player.session, &reason()).await.unwrap();
    // The cursor file trims its trail at the next change.
    let next = join(store, &telegram, LONG).await;
    store.close_session(&next.session, &reason()).await.unwrap();
    store.retain(Retention { history_slots: 32, audit_kept: 1_000 }).await.unwrap();
    let entries = trail(store, &telegram).await;
    assert!((900..=1_300).contains(&entries.len()), "{}", entries.len());
    assert!(entries.iter().all(|entry| entry.instance != oldest.instance));
}

/// After a restore, everything that the old version has granted is below the new floor.
async fn adopting_continues_above(store: &Arc<dyn Store>, known: &[(DutyKey, Epoch, Ring)]) {
    let adopted = store.adopt(&Adopt { entropy: 9, floor: Epoch::ZERO }).await.unwrap();
    for (duty, epoch, ring) in known {
        assert!(adopted.floor >= *epoch, "{duty}: {adopted:?}");
        assert_eq!(history(store, duty).await, ring[..2.min(ring.len())], "{duty}");
        let player = join(store, &duty.group, LONG).await;
        assert!(hold(&player, duty).await.epoch > adopted.floor);
        store.close_session(&player.session, &reason()).await.unwrap();
    }
}

/// A duty of the old version that is forgotten never comes back under an epoch that it had.
async fn a_forgotten_duty_leaves_a_floor(old: &OldStore) {
    let duty: DutyKey = "telegram/bot-42".parse().unwrap();
    let store = old.open().await;
    let last = last_epoch(&store, &duty).await;
    let answers = store.forget(std::slice::from_ref(&duty), &reason()).await.unwrap();
    let [Forgotten::Forgotten { floor }] = answers[..] else { panic!("{answers:?}") };
    assert!(floor >= last);
    assert_eq!((newest(&store, &duty).await, history(&store, &duty).await), (None, Vec::new()));
    drop(store);
    let store = old.open().await;
    let player = join(&store, &duty.group, LONG).await;
    let again = hold(&player, &duty).await;
    assert!(again.epoch > floor);
    assert!(hold(&player, &DutyKey::new("telegram", "never").unwrap()).await.epoch > floor);
    let first = Committed::Saved(Version::new(1).unwrap());
    assert_eq!(player.commit(&again, 0, "{\"n\":1}").await, first);
}
