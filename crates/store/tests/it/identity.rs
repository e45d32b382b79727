//! Instances that sign with their own keys, and members that trust some of them.

use std::sync::{Arc, Mutex};

use tenure_core::store::Member;
use tenure_core::{Code, GroupName, InstanceId, Note, Seal, Store, Ttl, Version};
use tenure_store::signing::{IdentityKey, Protection, TrustedIdentities};
use tenure_store::transfer::{Arrival, Move, MoveOutcome, Operator, OperatorSession, put, rewind};

use crate::player::{LONG, Player, duty, load, memory, process, reason, unique};

fn key(byte: u8) -> IdentityKey {
    IdentityKey::from_pem(&IdentityKey::pem(&[byte; 32])).unwrap()
}

/// A process with a key that trusts those with the keys 1 and 2.
fn with(byte: u8) -> Protection {
    let line = |byte| format!("host-{byte} {}\n", key(byte).public());
    let trusted = TrustedIdentities::parse(&(line(1) + &line(2))).unwrap();
    Protection { identity: Some(key(byte)), trusted: Some(trusted), ..Protection::default() }
}

/// A process that signs, and trusts everybody.
fn only_signs(byte: u8) -> Protection {
    Protection { trusted: None, ..with(byte) }
}

/// Commits over version `before`.
async fn write(store: &Arc<dyn Store>, before: u64, text: &str) {
    let player = Player::join(store, "writer", LONG).await;
    let hold = player.hold("a").await;
    player.commit(&hold, before, text).await;
    store.close_session(&player.session, &reason()).await.unwrap();
}

async fn refuses(bare: &Arc<dyn Store>, says: &str) {
    let error = load(&process(bare, with(1)), "a").await.unwrap_err();
    assert_eq!(error.code(), Code::Untrusted);
    assert!(error.to_string().contains(says), "{error}");
}

fn operator(bare: &Arc<dyn Store>, protection: Protection) -> OperatorSession {
    let operator = Operator {
        instance: InstanceId::new(format!("operator-{}", unique())).unwrap(),
        ttl: Ttl::new(LONG).unwrap(),
        reason: reason(),
        force: true,
        entropy: || u128::from(unique()) << 64,
    };
    OperatorSession::new(bare.clone(), protection, format!("store-{}", unique()), operator)
}

#[tokio::test]
async fn only_checkpoints_of_trusted_instances_are_continued() {
    let bare = memory();
    let plain = process(&bare, Protection::default());
    write(&plain, 0, "unsigned").await;
    refuses(&bare, "version 1 of g/a by writer-").await;
    refuses(&bare, "it has no signature").await;
    write(&process(&bare, only_signs(2)), 1, "two").await;
    let one = process(&bare, with(1));
    assert_eq!(load(&one, "a").await.unwrap().unwrap().document.as_bytes(), b"two");
    // A process without keys still reads it.
    assert_eq!(load(&plain, "a").await.unwrap().unwrap().document.as_bytes(), b"two");
    write(&one, 2, "three").await;
    write(&process(&bare, only_signs(3)), 3, "stranger").await;
    refuses(&bare, "its key is not among the trusted identities").await;
    // Somebody who can write to the store copies the writer and its signature.
    let ring = bare.history(&duty("a")).await.unwrap();
    let copied = ring[1].document.clone();
    assert!(Seal::split(&copied).unwrap().0.writer.is_some());
    write(&plain, 4, "removed").await;
    let player = Player::join(&bare, "attacker", LONG).await;
    let hold = player.hold("a").await;
    let commit = tenure_core::store::Commit {
        hold: hold.clone(),
        expected: Version::new(5).unwrap(),
        document: copied,
    };
    bare.commit(&player.session, &[commit]).await.unwrap();
    player.release(&hold).await;
    refuses(&bare, "its signature does not fit").await;
    // Operators neither replace nor restore it, except by a version that is trusted.
    let mut operator = operator(&bare, with(1));
    let refused = put(&mut operator, &duty("a"), b"x", None).await.unwrap_err();
    assert_eq!(refused.code(), Code::Untrusted);
    let version = |n| Version::new(n).unwrap();
    for bad in [1, 4, 5, 6] {
        let refused = rewind(&mut operator, &duty("a"), version(bad)).await.unwrap_err();
        assert_eq!(refused.code(), Code::BadInput, "{bad}");
    }
    rewind(&mut operator, &duty("a"), version(3)).await.unwrap();
    assert_eq!(load(&one, "a").await.unwrap().unwrap().document.as_bytes(), b"three");
    // A move signs what it writes, too.
    let other = memory();
    let mut to = self::operator(&other, with(2));
    let same =
        |all: &[Vec<u8>]| Ok(vec![Arrival { duty: duty("a"), source: 0, payload: all[0].clone() }]);
    let moved = Move::new(&mut operator, &mut to).run(&[duty("a")], &duty("a"), &same).await;
    assert_eq!(moved, Ok(MoveOutcome::Moved));
    let there = load(&process(&other, with(1)), "a").await.unwrap().unwrap();
    assert_eq!(there.document.as_bytes(), b"three");
}

/// Opens a session, and returns it as others see it.
async fn joined(store: &Arc<dyn Store>, name: &str) -> (Player, InstanceId) {
    let player = Player::join(store, name, LONG).await;
    let instance = player.session.instance.clone();
    (player, instance)
}

#[tokio::test]
async fn members_that_are_not_trusted_are_reported_once() {
    let bare = memory();
    let told: Arc<Mutex<Vec<(InstanceId, String)>>> = Arc::default();
    let mut watching = with(1);
    let to = told.clone();
    watching.trusted.as_mut().unwrap().set_on_untrusted(Arc::new(move |group, instance, why| {
        assert_eq!(group.as_str(), "g");
        to.lock().unwrap().push((instance.clone(), why.to_owned()));
    }));
    let one = process(&bare, watching);
    let (first, me) = joined(&one, "one").await;
    let (_, two) = joined(&process(&bare, only_signs(2)), "two").await;
    let (_, stranger) = joined(&process(&bare, only_signs(3)), "three").await;
    let (_, forged) = joined(&bare, "forged").await;
    let group = GroupName::new("g").unwrap();
    // A status that is renewed stays signed, and is returned as it was given.
    let note = Note::new("tenure=1\nweight=2\n").unwrap();
    one.keep_alive(&first.session, Some(&note), &[]).await.unwrap();
    for _ in 0..3 {
        let members = one.members(&group).await.unwrap();
        assert_eq!(members.len(), 4);
        let mine = members.iter().find(|member| member.instance == me).unwrap();
        assert_eq!(mine.note, note);
        let told: Vec<_> = told.lock().unwrap().clone();
        let unknown = "its key is not among the trusted identities".to_owned();
        let unsigned = "its session has no signature".to_owned();
        let mut expected = vec![(stranger.clone(), unknown), (forged.clone(), unsigned)];
        expected.sort();
        let mut sorted = told;
        sorted.sort();
        assert_eq!(sorted, expected);
    }
    let trusted = with(1).trusted.unwrap();
    let names = bare.members(&group).await.unwrap();
    let name = |instance: &InstanceId| {
        let member: &Member = names.iter().find(|member| &member.instance == instance).unwrap();
        trusted.member(&group, member).map(str::to_owned)
    };
    assert_eq!((name(&me), name(&two)), (Ok("host-1".to_owned()), Ok("host-2".to_owned())));
    assert!(name(&stranger).is_err() && name(&forged).is_err());
}
