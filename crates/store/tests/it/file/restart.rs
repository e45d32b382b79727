//! Closing and reopening a store.

use tenure_core::guarantee::Fact;
use tenure_core::store::{
    Adopt, AuditRange, Claimed, Committed, Evict, Forgotten, Opened, Replaced, Report, Reported,
    Retention,
};
use tenure_core::{Code, Document, Epoch, GroupName, InstanceId, Version};
use tenure_store::file::{FileSettings, FileStore};
use tenure_store::{IfAbsent, StoreUrl};

use super::{load, look, names, open, refused, settings, try_open};
use crate::player::{LONG, Player, duty, reason, wish};

fn group() -> GroupName {
    GroupName::new("g").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_but_sessions_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path()).await;
    let player = Player::join(&first, "a", LONG).await;
    let hold = player.hold("main").await;
    for version in 0..3 {
        player.commit(&hold, version, &format!("{{\"n\": {version}}}")).await;
    }
    let report =
        Report { hold: hold.clone(), number: 1, document: Document::new("works").unwrap() };
    assert_eq!(first.report(&player.session, &[report]).await.unwrap(), [Reported::Stored]);
    let reports = first.reports(&[duty("main")]).await.unwrap();
    let document = Document::new("shards=8").unwrap();
    let replaced = first.replace_group_document(&group(), Version::ZERO, &document).await;
    assert!(matches!(replaced.unwrap(), Replaced::Saved(_)));
    let outcast = InstanceId::new("outcast").unwrap();
    first.evict(&group(), &outcast, Evict::Now, &reason()).await.unwrap();
    let audit = first.audit(&group(), AuditRange::first(100)).await.unwrap();
    let history = first.history(&duty("main")).await.unwrap();
    let session = player.session.clone();
    drop((player, first));

    let second = open(folder.path()).await;
    assert!(second.members(&group()).await.unwrap().is_empty());
    let holders = second.holders(&group()).await.unwrap();
    assert_eq!((holders.len(), &holders[0].holder), (1, &None));
    assert_eq!(second.history(&duty("main")).await.unwrap(), history);
    assert_eq!(load(&second, "main").await.as_ref(), history.first());
    assert_eq!(second.reports(&[duty("main")]).await.unwrap(), reports);
    assert_eq!(second.group_document(&group()).await.unwrap().document, document);
    assert_eq!(second.audit(&group(), AuditRange::first(100)).await.unwrap(), audit);
    assert_eq!(second.groups().await.unwrap(), [group()]);
    // The earlier session has ended, its nonce is spent, and its later calls are fenced.
    let old = Player { store: second.clone(), session: session.clone() };
    assert!(!old.keeps(&hold).await);
    let late = old.commit(&hold, 3, "late").await;
    assert_eq!(late, Committed::Fenced { newest: hold.epoch });
    let mut again = wish("a", LONG);
    (again.instance, again.nonce) = (session.instance, session.nonce);
    assert_eq!(second.open_session(&again).await.unwrap(), Opened::Spent);
    let mut evicted = wish("x", LONG);
    evicted.instance = outcast;
    assert_eq!(second.open_session(&evicted).await.unwrap(), Opened::Evicted);
    let next = Player::join(&second, "b", LONG).await.hold("main").await;
    assert_eq!(next.epoch.get(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_makes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    refused(&look(folder.path()).await.unwrap_err(), Code::Absent);
    assert!(names(folder.path()).is_empty());
    drop(open(folder.path()).await);
    look(folder.path()).await.unwrap();
    let nowhere = folder.path().join("no/such/folder");
    refused(&try_open(&nowhere).await.unwrap_err(), Code::Unreachable);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_duty_has_a_file_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let player = Player::join(&store, "a", LONG).await;
    let long = "x".repeat(500);
    for id in ["main", "0", "a/b", &long] {
        let hold = player.hold(id).await;
        player.commit(&hold, 0, &format!("{{\"id\": \"{id}\"}}")).await;
    }
    drop((player, store));
    let files = names(folder.path());
    for file in ["cursor.json", "cursor.json.partition-0", "cursor.json.partition-a%2Fb"] {
        assert!(files.iter().any(|name| name == file), "{file} is not in {files:?}");
    }
    let store = open(folder.path()).await;
    assert_eq!(store.holders(&group()).await.unwrap().len(), 4);
    for id in ["main", "0", "a/b", &long] {
        let text = format!("{{\"id\": \"{id}\"}}");
        assert_eq!(load(&store, id).await.unwrap().document.as_bytes(), text.as_bytes());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_url_names_the_file_and_its_duty() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cursor.json");
    let url = |duty: &str| StoreUrl::parse(&format!("file:{}{duty}", path.display())).unwrap();
    let store = url("#telegram/bot").open(IfAbsent::Create, 7).await.unwrap();
    let bot = tenure_core::DutyKey::new("telegram", "bot").unwrap();
    let mut open = wish("a", LONG);
    open.group = bot.group.clone();
    store.open_session(&open).await.unwrap();
    let player = Player { store: store.clone(), session: open.session() };
    let want = tenure_core::store::ClaimRequest::new(bot.clone());
    let claimed = store.claim(&player.session, &[want], &reason()).await.unwrap().remove(0);
    let Claimed::Granted(hold) = claimed else { panic!("{claimed:?}") };
    player.commit(&hold, 0, "{}").await;
    assert!(path.exists());
    drop((player, store));
    // The store remembers its duty; opening it with another one must not create a second cursor.
    let store = url("").open(IfAbsent::Refuse, 7).await.unwrap();
    assert!(store.load(&[bot]).await.unwrap()[0].is_some());
    drop(store);
    let error = url("#gmail/me").open(IfAbsent::Create, 7).await.unwrap_err();
    refused(&error, Code::BadUrl);
    assert!(url("").migration_script().unwrap().starts_with('#'));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_forgotten_stays_forgotten_and_its_epochs_too() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let player = Player::join(&store, "a", LONG).await;
    for id in ["main", "p"] {
        let hold = player.hold(id).await;
        player.commit(&hold, 0, "{}").await;
        let held = store.forget(&[duty(id)], &reason()).await.unwrap();
        assert!(matches!(held[0], Forgotten::HeldBy(Some(_))), "{held:?}");
        player.release(&hold).await;
        let hold = player.hold(id).await;
        player.release(&hold).await;
    }
    let saved = std::fs::read(folder.path().join("cursor.json.partition-p")).unwrap();
    let floor = Epoch::new(2).unwrap();
    let forgotten = store.forget(&[duty("p"), duty("q"), duty("main")], &reason()).await.unwrap();
    let gone = Forgotten::Forgotten { floor };
    assert_eq!(forgotten, [gone.clone(), Forgotten::Absent, gone]);
    drop((player, store));
    let files = names(folder.path());
    assert!(files.iter().all(|name| name.starts_with("cursor.json.tenure/")), "{files:?}");
    assert!(files.iter().all(|name| !name.contains("history")), "{files:?}");
    let store = open(folder.path()).await;
    assert!(store.holders(&group()).await.unwrap().is_empty());
    assert_eq!(load(&store, "p").await, None);
    // The forgotten checkpoint's file is restored: it is read again, but no epoch is reused.
    drop(store);
    std::fs::write(folder.path().join("cursor.json.partition-p"), saved).unwrap();
    let store = open(folder.path()).await;
    assert_eq!(load(&store, "p").await.unwrap().version.get(), 1);
    let player = Player::join(&store, "b", LONG).await;
    assert_eq!(player.hold("p").await.epoch.get(), 3);
    assert_eq!(player.hold("new").await.epoch.get(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn adopting_and_retaining_are_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let player = Player::join(&store, "a", LONG).await;
    let hold = player.hold("main").await;
    for version in 0..6 {
        player.commit(&hold, version, "{}").await;
    }
    let retention = Retention { history_slots: 3, audit_kept: 1000 };
    store.retain(retention).await.unwrap();
    assert_eq!(store.history(&duty("main")).await.unwrap().len(), 3);
    let floor = Epoch::new(40).unwrap();
    let adopted = store.adopt(&Adopt { entropy: 9, floor }).await.unwrap();
    assert_eq!((adopted.sessions, adopted.duties, adopted.floor), (1, 1, floor));
    assert!(!player.keeps(&hold).await);
    drop((player, store));
    let store = open(folder.path()).await;
    assert_eq!(store.abilities().history_slots, 3);
    assert_eq!(store.history(&duty("main")).await.unwrap().len(), 3);
    let player = Player::join(&store, "b", LONG).await;
    let hold = player.hold("main").await;
    assert_eq!(hold.epoch.get(), 41);
    player.commit(&hold, 6, "{}").await;
    assert_eq!(store.history(&duty("main")).await.unwrap().len(), 3);
    let kept = names(folder.path()).iter().filter(|name| name.contains("/history/")).count();
    assert_eq!(kept, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_trail_is_trimmed_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    store.retain(Retention { history_slots: 1, audit_kept: 1000 }).await.unwrap();
    let player = Player::join(&store, "a", LONG).await;
    let ids: Vec<String> = (0..700).map(|n| format!("d{n}")).collect();
    for _ in 0..2 {
        let holds = player.hold_all(&ids).await;
        store.release(&player.session, &holds, &reason()).await.unwrap();
    }
    drop((player, store));
    let store = open(folder.path()).await;
    let mut seen = Vec::new();
    loop {
        let after = seen.last().copied().unwrap_or(0);
        let part = store.audit(&group(), AuditRange { after, limit: 300 }).await.unwrap();
        if part.is_empty() {
            break;
        }
        seen.extend(part.iter().map(|entry| entry.seq));
    }
    assert!(seen.is_sorted_by(|a, b| a + 1 == *b), "{seen:?}");
    assert_eq!(seen.last(), Some(&(1 + 4 * 700)));
    assert!((1000..2000).contains(&seen.len()), "{}", seen.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_is_followed_to_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let (data, links) = (folder.path().join("data"), folder.path().join("links"));
    std::fs::create_dir(&data).unwrap();
    std::fs::create_dir(&links).unwrap();
    // The file does not exist yet: the link points to where it will be.
    std::os::unix::fs::symlink("../data/cursor.json", links.join("cursor.json")).unwrap();
    let store = open(&links).await;
    refused(&try_open(&data).await.unwrap_err(), Code::InUse);
    let player = Player::join(&store, "a", LONG).await;
    let hold = player.hold("main").await;
    player.commit(&hold, 0, "{}").await;
    assert!(links.join("cursor.json").is_symlink());
    assert_eq!(names(&links), ["cursor.json"]);
    assert!(names(&data).contains(&"cursor.json".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_survey_tells_the_file_system() {
    let folder = tempfile::tempdir().unwrap();
    let survey = open(folder.path()).await.survey().await.unwrap();
    assert_eq!(survey.backend, "file");
    let names: Vec<_> = survey.facts.iter().map(|fact| fact.setting).collect();
    assert_eq!(names, ["filesystem", "lock", "users"]);
    assert!(survey.facts[0].value.is_some());
    assert_eq!(survey.facts[2], Fact::read("users", "one"));
    assert!(survey.unix_ms.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_format_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()).await);
    let path = folder.path().join("cursor.json.tenure/store.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let body = text.split_once("\"body\":").unwrap().1.trim_end().strip_suffix('}').unwrap();
    let body = body.replace("\"format\":1", "\"format\":2");
    let sum = tenure_wire::folder::sha256(&body);
    std::fs::write(&path, format!("{{\"sha256\":\"{sum}\",\"body\":{body}}}\n")).unwrap();
    refused(&try_open(folder.path()).await.unwrap_err(), Code::NewerSchema);
}

/// Only the settings determine the duty of the file.
#[tokio::test(flavor = "multi_thread")]
async fn the_default_duty_is_file_cursor() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cursor.json");
    std::fs::write(&path, "{\"last_update_id\": 5}").unwrap();
    let settings = FileSettings { duty: None, ..settings(folder.path()) };
    let store = FileStore::open(settings).await.unwrap();
    let cursor = tenure_core::DutyKey::new("file", "cursor").unwrap();
    let stored = tenure_core::Store::load(&store, &[cursor]).await.unwrap().remove(0);
    assert_eq!(stored.unwrap().document.as_bytes(), b"{\"last_update_id\": 5}");
}

/// The first change turns a read-only handle into a store. If that fails to read everything, the
/// next change reads all of it again: epochs that were not read would be granted again.
#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_read_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cursor.json"), "{\"last_update_id\": 5}").unwrap();
    let looking = look(folder.path()).await.unwrap();
    let other = open(folder.path()).await;
    let player = Player::join(&other, "a", LONG).await;
    let hold = player.hold("main").await;
    player.commit(&hold, 1, "{}").await;
    player.release(&hold).await;
    player.hold("main").await;
    drop((player, other));

    let state = folder.path().join("cursor.json.tenure/group-g.json");
    let kept = folder.path().join("kept");
    std::fs::rename(&state, &kept).unwrap();
    std::fs::create_dir(&state).unwrap();
    for _ in 0..2 {
        let error = looking.open_session(&wish("b", LONG)).await.unwrap_err();
        refused(&error, Code::Failed);
        assert_eq!(looking.groups().await.unwrap(), [group()]);
    }
    std::fs::remove_dir(&state).unwrap();
    std::fs::rename(&kept, &state).unwrap();
    let player = Player::join(&looking, "b", LONG).await;
    assert_eq!(player.hold("main").await.epoch.get(), 3);
}
