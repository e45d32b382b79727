//! Encrypted checkpoints: keys, rotation, tampering, and operators.

use std::sync::Arc;

use tenure_core::store::Checkpoint;
use tenure_core::{Code, Document, InstanceId, Seal, Store, Ttl, Version};
use tenure_store::signing::{
    EncryptionKeys, Keyring, Protection, SignatureVerdict, Signing, verify,
};
use tenure_store::transfer::{Arrival, Move, MoveOutcome, Operator, OperatorSession, put, rewind};

use crate::player::{LONG, Player, duty, load, memory, process, reason, unique};

const NEW: &str = "e2 encrypt HEX,e1 decrypt OTHER";

fn hex(text: &str) -> String {
    text.replace("HEX", &"5e".repeat(32)).replace("OTHER", &"07".repeat(32))
}

fn signed() -> Signing {
    Signing::Require(Keyring::parse(&hex("k1 sign HEX")).unwrap())
}

/// Returns what a process with these encryption keys does; with none for an empty text.
fn with(text: &str) -> Protection {
    let parse = || EncryptionKeys::parse(&hex(text), || u128::from(unique()) << 64 | 7).unwrap();
    Protection { encryption: (!text.is_empty()).then(parse), ..Protection::default() }
}

/// Writes a document over the newest version.
async fn write(store: &Arc<dyn Store>, text: &str) {
    let before = load(store, "a").await.unwrap().map_or(0, |stored| stored.version.get());
    let player = Player::join(store, "writer", LONG).await;
    let hold = player.hold("a").await;
    player.commit(&hold, before, text).await;
    store.close_session(&player.session, &reason()).await.unwrap();
    assert_eq!(load(store, "a").await.unwrap().unwrap().version.get(), before + 1);
}

async fn reads(store: &Arc<dyn Store>, text: &str) {
    assert_eq!(load(store, "a").await.unwrap().unwrap().document.as_bytes(), text.as_bytes());
}

/// Fails to read, and says why.
async fn fails(bare: &Arc<dyn Store>, protection: Protection, says: &str) {
    let before = bare.load(&[duty("a")]).await.unwrap();
    let store = process(bare, protection);
    let error = load(&store, "a").await.unwrap_err();
    assert_eq!(error.code(), Code::CannotDecrypt);
    assert!(error.to_string().contains(says), "{error}");
    assert!(!error.to_string().contains("5e5e") && !error.is_unknown(), "{error}");
    assert_eq!(store.history(&duty("a")).await.unwrap_err().code(), Code::CannotDecrypt);
    assert_eq!(bare.load(&[duty("a")]).await.unwrap(), before);
}

/// Returns the encryption key of the newest checkpoint.
async fn key(bare: &Arc<dyn Store>) -> Option<String> {
    let stored = bare.load(&[duty("a")]).await.unwrap().remove(0).unwrap();
    let (seal, payload) = Seal::split(&stored.document).unwrap();
    assert_eq!(seal.encrypted.is_none(), payload.starts_with(b"plain"));
    seal.encrypted.map(|(key, _)| key)
}

#[tokio::test]
async fn keys_are_rotated_without_a_gap() {
    let bare = memory();
    let off = process(&bare, with(""));
    write(&off, "plain 1").await;
    // Every process gets the key before any encrypts.
    let ready = process(&bare, with("none encrypt,e1 decrypt OTHER"));
    write(&ready, "plain 2").await;
    assert_eq!(key(&bare).await, None);
    let first = process(&bare, with("e1 encrypt OTHER"));
    reads(&first, "plain 2").await;
    write(&first, "plain 3").await;
    assert_eq!(key(&bare).await.as_deref(), Some("e1"));
    reads(&ready, "plain 3").await;
    let both = process(&bare, with("e1 encrypt OTHER,e2 decrypt HEX"));
    let turned = process(&bare, with(NEW));
    reads(&turned, "plain 3").await;
    write(&turned, "plain 4").await;
    assert_eq!(key(&bare).await.as_deref(), Some("e2"));
    reads(&both, "plain 4").await;
    // What was written before is read from the history, encrypted or not.
    let ring = turned.history(&duty("a")).await.unwrap();
    let ring: Vec<_> = ring.iter().map(|old| old.document.as_bytes()).collect();
    assert_eq!(ring, ["plain 4", "plain 3", "plain 2", "plain 1"].map(str::as_bytes));
    let last = process(&bare, with("e2 encrypt HEX"));
    reads(&last, "plain 4").await;
    // One version of the history is still under the removed key.
    assert_eq!(last.history(&duty("a")).await.unwrap_err().code(), Code::CannotDecrypt);
    // Back to documents that are not encrypted.
    let back = process(&bare, with("none encrypt,e2 decrypt HEX"));
    write(&back, "plain 5").await;
    assert_eq!(key(&bare).await, None);
    reads(&off, "plain 5").await;
}

#[tokio::test]
async fn without_the_key_nothing_is_read_or_changed() {
    let bare = memory();
    write(&process(&bare, with("e1 encrypt OTHER")), "plain").await;
    let place = "version 1 of g/a, encrypted with key e1: ";
    fails(&bare, with(""), &format!("{place}no encryption keys were given")).await;
    fails(&bare, with("e2 encrypt HEX"), &format!("{place}this key is not among")).await;
    fails(&bare, with("e1 encrypt HEX"), &format!("{place}it was changed, or another")).await;
    reads(&process(&bare, with(NEW)), "plain").await;
    // An operator without the key changes nothing either, unless it restores another version.
    let mut operator = operator(&bare, with(""));
    let refused = put(&mut operator, &duty("a"), b"{}", None).await;
    assert_eq!(refused.unwrap_err().code(), Code::CannotDecrypt);
    let refused = rewind(&mut operator, &duty("a"), Version::new(1).unwrap()).await;
    assert_eq!(refused.unwrap_err().code(), Code::CannotDecrypt);
    assert_eq!(bare.load(&[duty("a")]).await.unwrap().remove(0).unwrap().version.get(), 1);
}

/// The same document is never stored as the same bytes, and never in the clear.
#[tokio::test]
async fn equal_documents_look_different() {
    let bare = memory();
    let store = process(&bare, Protection { signing: signed(), ..with(NEW) });
    for _ in 0..3 {
        write(&store, "plain and secret").await;
    }
    let ring = bare.history(&duty("a")).await.unwrap();
    let split = |stored: &Checkpoint| Seal::split(&stored.document).unwrap().1.to_vec();
    let payloads: Vec<_> = ring.iter().map(split).collect();
    assert!(payloads.iter().all(|payload| payload.len() == 16 + Seal::TAG_BYTES));
    assert!(payloads.iter().all(|payload| !payload.windows(6).any(|part| part == b"secret")));
    assert!(payloads[0] != payloads[1] && payloads[1] != payloads[2]);
    // Signatures are verified without the encryption keys.
    let newest = bare.load(&[duty("a")]).await.unwrap().remove(0);
    let verdicts = verify(signed().keys(), &duty("a"), newest.as_ref(), &ring);
    assert!(verdicts.iter().all(|(_, one)| one.verdict == SignatureVerdict::Good));
}

#[tokio::test]
async fn the_largest_document_can_be_encrypted() {
    let bare = memory();
    let store = process(&bare, Protection { signing: signed(), ..with(NEW) });
    let largest = format!("plain{}", "x".repeat(Document::MAX_DOCUMENT_BYTES - 5));
    write(&store, &largest).await;
    reads(&store, &largest).await;
    let player = Player::join(&store, "next", LONG).await;
    let hold = player.hold("a").await;
    let refused = player.try_commit(&hold, 1, "tenure-seal:1 ").await;
    assert_eq!(refused.unwrap_err().code(), Code::BadInput);
}

fn operator(bare: &Arc<dyn Store>, protection: Protection) -> OperatorSession {
    let operator = Operator {
        instance: InstanceId::new(format!("operator-{}", unique())).unwrap(),
        ttl: Ttl::new(LONG).unwrap(),
        reason: reason(),
        force: true,
        entropy: || u128::from(unique()) << 64,
    };
    let name = format!("store-{}", unique());
    OperatorSession::new(bare.clone(), protection, name, operator)
}

/// Rewinds and moves a checkpoint to another store and back. The targets have something already.
#[tokio::test]
async fn an_operator_decrypts_and_encrypts_again() {
    let (bare, other) = (memory(), memory());
    let protected = || Protection { signing: signed(), ..with(NEW) };
    let (here, there) = (process(&bare, protected()), process(&other, protected()));
    write(&here, "plain 1").await;
    write(&here, "plain 2").await;
    write(&there, "plain x").await;
    let (mut from, mut to) = (operator(&bare, protected()), operator(&other, protected()));
    rewind(&mut from, &duty("a"), Version::new(1).unwrap()).await.unwrap();
    reads(&here, "plain 1").await;
    let same =
        |all: &[Vec<u8>]| Ok(vec![Arrival { duty: duty("a"), source: 0, payload: all[0].clone() }]);
    let duties = [duty("a")];
    // Without the key of the target's checkpoint, which has to be marked, nothing is moved.
    let mut ignorant = operator(&other, signed().into());
    let refused = Move::new(&mut from, &mut ignorant).run(&duties, &duty("a"), &same).await;
    assert_eq!(refused.unwrap_err().code(), Code::CannotDecrypt);
    ignorant.close().await;
    reads(&here, "plain 1").await;
    for (source, target) in [((&mut from, &bare), (&mut to, &other))] {
        let moved = Move::new(source.0, target.0).run(&duties, &duty("a"), &same).await;
        assert_eq!(moved, Ok(MoveOutcome::Moved));
        assert_eq!(key(target.1).await.as_deref(), Some("e2"));
        let moved = Move::new(source.0, target.0).run(&duties, &duty("a"), &same).await;
        assert_eq!(moved, Ok(MoveOutcome::AlreadyMoved));
    }
    reads(&there, "plain 1").await;
    assert_eq!(load(&here, "a").await.unwrap_err().code(), Code::Moved);
    write(&there, "plain 3").await;
    let back = Move::new(&mut to, &mut from).run(&duties, &duty("a"), &same).await;
    assert_eq!(back, Ok(MoveOutcome::Moved));
    reads(&here, "plain 3").await;
    for bare in [&bare, &other] {
        let ring = bare.history(&duty("a")).await.unwrap();
        let is_encrypted =
            |old: &Checkpoint| Seal::split(&old.document).unwrap().0.encrypted.is_some();
        assert!(ring.iter().all(is_encrypted));
    }
}
