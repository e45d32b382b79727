//! The server: restarted, unreachable, read-only, behind a pooler, with other passwords.

use std::time::Duration;

use tenure_core::store::{Claimed, Committed, HoldFate, KeptAlive};
use tenure_core::{Code, GroupName, StoreError};
use testkit::{Pgbouncer, PostgresOptions, PostgresServer, Proxy};

use super::Place;
use super::stopped::{self, Effect};
use crate::player::{LONG, Player, duty, or_hang};

fn private() -> PostgresServer {
    PostgresServer::start(PostgresOptions::default()).unwrap()
}

/// Repeats a call until it works: the pool must notice that its connections are dead.
async fn until_back<T, F: Future<Output = Result<T, StoreError>>>(call: impl Fn() -> F) -> T {
    let mut tick = tokio::time::interval(Duration::from_millis(20));
    let calling = async {
        loop {
            match call().await {
                Ok(answer) => return answer,
                Err(error) => {
                    let known = [Code::Lost, Code::Unreachable, Code::Full];
                    assert!(known.contains(&error.code()), "{error}");
                }
            }
            tick.tick().await;
        }
    };
    or_hang(calling).await
}

#[tokio::test(flavor = "multi_thread")]
async fn epochs_holds_and_checkpoints_survive_a_killed_server() {
    let server = private();
    let place = Place::on(server.url());
    let store = place.open().await;
    let (a, b) = (Player::join(&store, "a", LONG).await, Player::join(&store, "b", LONG).await);
    let hold = a.hold("d").await;
    assert!(matches!(a.commit(&hold, 0, "cursor").await, Committed::Saved(_)));
    let group = GroupName::new("g").unwrap();
    let mut watch = store.watch(&group).await.unwrap();

    server.kill().unwrap();
    let error = a.try_commit(&hold, 1, "while it is down").await.unwrap_err();
    assert!(matches!(error.code(), Code::Lost | Code::Unreachable), "{error}");
    server.start_again().unwrap();

    let stored = until_back(|| store.load(std::slice::from_ref(&hold.duty))).await;
    assert_eq!(stored[0].as_ref().unwrap().document.as_bytes(), b"cursor");
    let kept = until_back(|| store.keep_alive(&a.session, None, std::slice::from_ref(&hold))).await;
    assert!(matches!(kept, KeptAlive::Kept { holds, .. } if holds == [HoldFate::Kept]));
    assert!(matches!(until_back(|| b.try_claim("d")).await, Claimed::HeldBy(_)));
    // The watch was disconnected; reconnecting yields one hint.
    or_hang(watch.changed()).await.unwrap();
    a.release(&hold).await;
    assert_eq!(b.hold("d").await.epoch, hold.epoch.next().unwrap());
}

/// The answer is lost with the connection: the caller gets an unknown outcome, and finds its own
/// write when it reads again.
#[tokio::test(flavor = "multi_thread")]
async fn a_reply_lost_on_the_way_is_unknown_and_can_be_read_again() {
    let Some(place) = Place::given() else { return };
    let port = place.url.rsplit_once(':').unwrap().1.split('/').next().unwrap();
    let proxy = Proxy::start(port.parse().unwrap()).unwrap();
    let through = Place {
        url: place.url.replace(&format!(":{port}/"), &format!(":{}/", proxy.port())),
        ..place.clone()
    };
    let store = through.open().await;
    let a = Player::join(&store, "a", LONG).await;
    let hold = a.hold("d").await;
    proxy.swallow_replies();
    let committing = {
        let (a, hold) = (a.clone(), hold.clone());
        tokio::spawn(async move { a.try_commit(&hold, 0, "mine").await })
    };
    let swallowed = || proxy.swallowed() > 0;
    testkit::wait_until("the reply was swallowed", Duration::from_secs(30), swallowed).unwrap();
    proxy.cut();
    let error = or_hang(committing).await.unwrap().unwrap_err();
    assert!(error.is_unknown(), "{error}");
    let direct = place.open().await;
    let stored = direct.load(&[duty("d")]).await.unwrap().remove(0).unwrap();
    assert_eq!((stored.epoch, &stored.instance), (hold.epoch, &a.session.instance));
    assert_eq!(stored.document.as_bytes(), b"mine");
    // Nothing reaches the server any more, so the call is refused, not unknown.
    let error = a.try_commit(&hold, 1, "two").await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused(_)), "{error}");
    assert_eq!(error.code(), Code::Unreachable);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_is_refused() {
    let primary = private();
    let standby = PostgresServer::standby_of(&primary).unwrap();
    let error = Place::on(standby.url()).try_open().await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused(_)), "{error}");
    assert_eq!(error.code(), Code::ReadOnly);
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_works_behind_a_transaction_pooler() {
    let server = private();
    let pooler = Pgbouncer::start(&server).unwrap();
    let place = Place::on(pooler.url());
    let store = place.open().await;
    let mut playing = tokio::task::JoinSet::new();
    for n in 0..8 {
        let store = store.clone();
        playing.spawn(async move {
            let player = Player::join(&store, "a", LONG).await;
            for version in 0..10 {
                let id = format!("d{n}.{version}");
                let hold = player.hold(&id).await;
                assert!(matches!(player.commit(&hold, 0, "x").await, Committed::Saved(_)));
                assert!(player.keeps(&hold).await);
                player.release(&hold).await;
            }
        });
    }
    playing.join_all().await;
    let holders = store.holders(&GroupName::new("g").unwrap()).await.unwrap();
    assert_eq!(holders.len(), 80);

    // The pooler reads a result from the server only as fast as its client reads.
    let direct = Place { url: server.url(), ..place.clone() };
    stopped::with_table(&direct).await;
    let a = Player::join(&store, "a", Duration::from_millis(1_000)).await;
    let hold = a.hold("d").await;
    let effect = Effect::start(&direct, &pooler.url(), &hold, stopped::ENDLESS).await;
    effect.until_gone().await;
    let b = Player::join(&store, "b", LONG).await;
    or_hang(b.claim_until_granted("d")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_denied_and_never_printed() {
    let Some(place) = Place::given() else { return };
    let (_, host) = place.url.rsplit_once('@').unwrap();
    for url in [
        format!("postgres://tenure:wr0ng-s3cret@{host}"),
        format!("postgres://nobody-s3cret:wr0ng-s3cret@{host}"),
    ] {
        let place = Place { url, ..place.clone() };
        let error = place.try_open().await.unwrap_err();
        assert!(matches!(&error, StoreError::Refused(_)), "{error}");
        assert_eq!(error.code(), Code::Denied);
        for text in [error.to_string(), format!("{error:?}"), format!("{:?}", place.settings())] {
            assert!(!text.contains("wr0ng-s3cret"), "{text}");
        }
    }
    let shown = format!("{:?}", place.open().await);
    let password = place.url.split(':').nth(2).unwrap().split('@').next().unwrap();
    assert!(!shown.contains(password), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_url_that_cannot_be_used_says_why() {
    for (url, code) in [
        ("postgres://127.0.0.1:1/db", Code::Unreachable),
        ("postgres://h/db?sslmode=s3cret", Code::BadUrl),
        ("postgres://h:notaport/db", Code::BadUrl),
        ("postgres://h/db?no_such_option=s3cret", Code::BadUrl),
    ] {
        let error = Place::on(url.to_owned()).try_open().await.unwrap_err();
        assert!(matches!(&error, StoreError::Refused(_)), "{error}");
        assert_eq!(error.code(), code, "{url}: {error}");
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }
}
