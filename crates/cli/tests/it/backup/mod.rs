//! `tenure store backup` and `tenure store restore`.

mod refusals;
mod servers;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tenure_core::store::{AuditRange, ClaimRequest, Claimed, Commit, Committed, KeptAlive};
use tenure_core::{Document, DutyKey, Epoch, GroupName, Hold, Reason, Session, Store, Version};
use tenure_duty::process;
use tenure_store::{IfAbsent, StoreUrl};
use testkit::wait_until;

use crate::running::LIMIT;
use crate::switchboard::{Place, envelope};
use crate::tenure::{Tenure, join};

const GROUP: &str = "file";
const DUTIES: [&str; 3] = ["cursor", "a", "b"];

/// What a store has acknowledged: the newest epoch and version of each duty.
type Known = BTreeMap<&'static str, (u64, u64)>;

fn duty(id: &str) -> DutyKey {
    DutyKey::new(GROUP, id).unwrap()
}

async fn open(url: &str) -> Arc<dyn Store> {
    let url = StoreUrl::parse(url).unwrap();
    url.open(IfAbsent::Create, process::entropy()).await.unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A session that holds a duty, as one that a restore has to end.
#[derive(Debug)]
struct OldHolder(Session, Hold);

/// Takes a duty over and commits to it. The document has its own version in it.
async fn work(store: &dyn Store, id: &'static str, commits: u64) -> Option<(OldHolder, u64, u64)> {
    let session = join(store, GROUP, &process::fresh_nonce().to_string(), "").await;
    let reason = Reason::new("test").unwrap();
    let claimed = store.claim(&session, &[ClaimRequest::new(duty(id))], &reason).await.unwrap();
    let Claimed::Granted(hold) = claimed[0].clone() else {
        store.close_session(&session, &reason).await.unwrap();
        return None;
    };
    let mut at = store.load(&[duty(id)]).await.unwrap().remove(0).map_or(0, |it| it.version.get());
    for _ in 0..commits {
        let document = Document::new(format!("{{\"n\":{}}}", at + 1)).unwrap();
        let expected = Version::new(at).unwrap();
        let commit = Commit { hold: hold.clone(), expected, document };
        let saved = store.commit(&session, &[commit]).await.unwrap().remove(0);
        assert_eq!(saved, Committed::Saved(Version::new(at + 1).unwrap()));
        at += 1;
    }
    let epoch = hold.epoch.get();
    Some((OldHolder(session, hold), epoch, at))
}

async fn give_back(store: &dyn Store, OldHolder(session, hold): OldHolder) {
    let reason = Reason::new("test").unwrap();
    store.release(&session, &[hold], &reason).await.unwrap();
    store.close_session(&session, &reason).await.unwrap();
}

/// Grants that go on and on in this process, with commits, on every duty.
struct Storm {
    stop: Arc<AtomicBool>,
    known: Arc<Mutex<Known>>,
    rounds: Arc<AtomicU64>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Storm {
    /// `shared` stores are opened by each thread.
    fn start(url: &str, shared: bool) -> Self {
        let (stop, known) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Known>>::default());
        let rounds = Arc::new(AtomicU64::new(0));
        let threads = (0..if shared { 2 } else { 1 }).map(|_| {
            let (url, stop, known) = (url.to_owned(), stop.clone(), known.clone());
            let rounds = rounds.clone();
            std::thread::spawn(move || {
                runtime().block_on(async {
                    let store = open(&url).await;
                    for id in DUTIES.iter().cycle() {
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                        if let Some((holder, epoch, version)) = work(&*store, id, 5).await {
                            known.lock().unwrap().insert(id, (epoch, version));
                            rounds.fetch_add(1, Ordering::Relaxed);
                            give_back(&*store, holder).await;
                        }
                    }
                });
            })
        });
        let threads = threads.collect();
        Self { stop, known, rounds, threads }
    }

    fn known(&self) -> Known {
        self.known.lock().unwrap().clone()
    }

    fn goes_on_for(&self, rounds: u64) {
        let from = self.rounds.load(Ordering::Relaxed);
        let more = || self.rounds.load(Ordering::Relaxed) >= from + rounds;
        wait_until("the storm goes on", LIMIT, more).unwrap();
    }

    fn end(self) -> Known {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        Arc::into_inner(self.known).unwrap().into_inner().unwrap()
    }
}

/// Checks that a store is as it was at one moment; returns its versions.
async fn check_whole(store: &dyn Store) -> BTreeMap<&'static str, u64> {
    let group = GroupName::new(GROUP).unwrap();
    let holders = store.holders(&group).await.unwrap();
    let mut versions = BTreeMap::new();
    for id in DUTIES {
        let Some(newest) = store.load(&[duty(id)]).await.unwrap().remove(0) else { continue };
        let text = format!("{{\"n\":{}}}", newest.version);
        assert_eq!(String::from_utf8_lossy(newest.document.as_bytes()), text);
        let holder = holders.iter().find(|it| it.duty == duty(id)).unwrap();
        assert!(holder.epoch.unwrap() >= newest.epoch, "{holder:?} {newest:?}");
        let history = store.history(&duty(id)).await.unwrap();
        assert_eq!(history[0], newest);
        for two in history.windows(2) {
            assert_eq!(two[0].version.get(), two[1].version.get() + 1, "{id}");
            assert!(two[0].epoch >= two[1].epoch);
        }
        assert!(history.len() as u64 >= newest.version.get().min(32), "{id}: {}", history.len());
        versions.insert(id, newest.version.get());
    }
    let range = AuditRange { after: 0, limit: 100_000 };
    let trail = store.audit(&group, range).await.unwrap();
    assert!(trail.windows(2).all(|two| two[0].seq < two[1].seq));
    let granted = trail.iter().filter_map(|entry| entry.epoch).max().unwrap();
    assert_eq!(Some(granted), holders.iter().filter_map(|it| it.epoch).max());
    versions
}

/// A restored store grants above all that was ever granted, and refuses those who held before.
async fn check_fenced(store: &dyn Store, newest: u64, old: Vec<OldHolder>) {
    for OldHolder(session, hold) in &old {
        let kept = store.keep_alive(session, None, std::slice::from_ref(hold)).await.unwrap();
        assert_eq!(kept, KeptAlive::Ended);
        let now = store.load(std::slice::from_ref(&hold.duty)).await.unwrap().remove(0);
        let expected = now.map_or(Version::ZERO, |now| now.version);
        let document = Document::new("old").unwrap();
        let commit = Commit { hold: hold.clone(), expected, document };
        let late = store.commit(session, &[commit]).await.unwrap().remove(0);
        assert!(matches!(late, Committed::Fenced { .. }), "{late:?}");
    }
    for id in DUTIES {
        let (holder, epoch, _) = work(store, id, 1).await.unwrap();
        assert!(epoch > newest, "{epoch} {newest}");
        give_back(store, holder).await;
    }
}

/// Stores in files, each with whether several processes can use it.
fn local_stores(tenure: &Tenure) -> [(String, bool); 2] {
    let file = format!("file:{}", tenure.path("own.json").display());
    [(tenure.sqlite("tenure.db"), true), (file, false)]
}

fn backup(tenure: &Tenure, url: &str, to: &str) -> Value {
    tenure.run(&["store", "backup", to, "--json", "--store", url]).json()
}

fn restore(tenure: &Tenure, url: &str, from: &str) -> Value {
    tenure.run(&["store", "restore", from, "--yes", "--json", "--store", url]).json()
}

/// Backups during commits and takeovers; each is whole, and can be restored.
#[test]
fn a_backup_of_a_store_in_use_is_of_one_moment() {
    let tenure = Tenure::new();
    for (url, shared) in local_stores(&tenure) {
        let storm = Storm::start(&url, shared);
        storm.goes_on_for(6);
        let mut backups = Vec::new();
        for n in 0..8 {
            let before = storm.known();
            let to = format!("{}-{n}", url.split(':').next().unwrap());
            let said = backup(&tenure, &url, &to);
            assert_eq!((&said["groups"], &said["duties"]), (&1.into(), &3.into()), "{said}");
            backups.push((to, before, storm.known(), said));
            storm.goes_on_for(2);
        }
        let last = storm.end();
        let newest = last.values().map(|(epoch, _)| *epoch).max().unwrap();
        for (from, before, after, said) in backups {
            let done = restore(&tenure, &url, &from);
            assert_eq!(done["newest_epoch"], said["newest_epoch"], "{done}");
            assert!(done["floor"].as_u64().unwrap() > newest, "{done}");
            runtime().block_on(async {
                let store = open(&url).await;
                let versions = check_whole(&*store).await;
                for id in DUTIES {
                    // A round that had begun may have come further than it has said.
                    let (known, later) = (before[id].1, after[id].1 + 5);
                    assert!((known..=later).contains(&versions[id]), "{url} {id} {versions:?}");
                }
                check_fenced(&*store, newest, Vec::new()).await;
            });
        }
        // Every store that was replaced is still there.
        let kept = format!("{}.before-1", url.split_once(':').unwrap().1);
        let kept = match shared {
            true => format!("sqlite:{kept}"),
            false => format!("file:{kept}/own.json"),
        };
        runtime().block_on(async {
            let versions = check_whole(&*open(&kept).await).await;
            assert!(DUTIES.iter().all(|id| versions[id] == last[id].1), "{versions:?} {last:?}");
        });
    }
}

/// A holder that has slept since before the backup, and one from after it.
#[test]
fn a_restore_ends_all_sessions_and_reuses_no_epoch() {
    let tenure = Tenure::new();
    for (url, _) in local_stores(&tenure) {
        let (mut old, mut newest) = (Vec::new(), 0);
        runtime().block_on(async {
            let store = open(&url).await;
            old.extend(work(&*store, "a", 2).await.map(|it| it.0));
        });
        backup(&tenure, &url, "backup");
        runtime().block_on(async {
            let store = open(&url).await;
            // Higher than the time of day, as after an adoption under a wrong clock.
            let floor = Epoch::new(process::unix_micros() + 3_600_000_000).unwrap();
            let adopt = tenure_core::store::Adopt { entropy: process::entropy(), floor };
            store.adopt(&adopt).await.unwrap();
            for id in DUTIES {
                let (holder, epoch, _) = work(&*store, id, 3).await.unwrap();
                old.push(holder);
                newest = epoch.max(newest);
            }
        });
        let words = ["store", "restore", "backup", "--store", &url];
        let dry = tenure.run(&[&words[..], &["--dry-run", "--json"]].concat()).json();
        assert_eq!((&dry["restored"], &dry["before"]), (&false.into(), &Value::Null));
        let unconfirmed = tenure.run(&words);
        assert_eq!(unconfirmed.code, Some(1), "{unconfirmed:?}");
        assert!(unconfirmed.stderr.contains("add --yes to confirm"), "{unconfirmed:?}");
        runtime().block_on(async {
            let version = open(&url).await.load(&[duty("a")]).await.unwrap()[0].clone().unwrap();
            assert_eq!(version.version.get(), 5);
        });
        let done = restore(&tenure, &url, "backup");
        assert_eq!(done["restored"], true, "{done}");
        runtime().block_on(async {
            let store = open(&url).await;
            let checkpoints = store.load(&DUTIES.map(duty)).await.unwrap();
            let versions =
                checkpoints.iter().map(|it| it.as_ref().map_or(0, |it| it.version.get()));
            assert_eq!(versions.collect::<Vec<_>>(), [0, 2, 0]);
            check_fenced(&*store, newest, old).await;
        });
        std::fs::remove_dir_all(tenure.path("backup"))
            .or_else(|_| std::fs::remove_file(tenure.path("backup")))
            .unwrap();
    }
}

/// The switchboard's tables are in the same file.
#[test]
fn an_inbox_is_backed_up_and_continues_above_its_readers() {
    let place = Place::sqlite();
    let tenure = &place.tenure;
    let server = place.serve(&[]);
    let submit = |id: &str| server.ingest(&envelope(id)).is(202);
    submit("1");
    submit("2");
    let said = backup(tenure, &place.url, "backup.db");
    assert_eq!(said["messages"], 2, "{said}");
    submit("3");
    // A server has the file open, although it holds nothing.
    let in_use = tenure.run(&["store", "restore", "backup.db", "--yes", "--store", &place.url]);
    in_use.refused("ST021");
    server.stop();
    let done = restore(tenure, &place.url, "backup.db");
    assert_eq!(done["messages"], 2, "{done}");
    assert!(done["inbox_floor"].as_u64().unwrap() > 1_577_836_800_000_000, "{done}");
    let server = place.serve(&[]);
    assert_eq!(server.inbox().len(), 2);
    server.ingest(&envelope("3")).is(202);
    let newest = server.inbox().pop().unwrap();
    assert!(newest["position"].as_u64() > done["inbox_floor"].as_u64(), "{newest}");
    server.stop();
}
