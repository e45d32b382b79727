//! `rediss://`: trust, and the errors of refused connections.

use std::time::Duration;

use tenure_core::{Code, Store, StoreError};
use testkit::{CertificateOptions, Certificates, RedisOptions};

use super::kit::{
    commit, group, hold, is_kept, join, keep, keys, refused, server, settled, try_open, unique,
    wish,
};

const PASSWORD: &str = "correct-horse";

fn certificates() -> Certificates {
    Certificates::make("tenure").unwrap()
}

/// Starts a server without a plain port, so every connection is encrypted.
fn encrypted(certificates: &Certificates, ask_clients: bool) -> testkit::RedisServer {
    let tls = Some(certificates.for_server(ask_clients));
    let password = Some(PASSWORD.to_owned());
    let server =
        testkit::RedisServer::start(RedisOptions { tls, password, ..RedisOptions::default() })
            .unwrap();
    assert_eq!(server.cli(&["config", "get", "port"]).unwrap(), "port\n0");
    server
}

fn root(certificates: &Certificates) -> String {
    format!("cacert={}", certificates.authority().display())
}

fn identity(certificates: &Certificates) -> String {
    let (certificate, key) = certificates.client();
    format!("cert={}&key={}", certificate.display(), key.display())
}

async fn error_of(url: &str) -> StoreError {
    let opening = tokio::time::timeout(Duration::from_secs(60), try_open(url));
    let error = opening.await.expect("it hangs").unwrap_err();
    assert!(refused(&error).is_some(), "{error}");
    assert!(!format!("{error} {error:?}").contains("horse"), "{error}");
    error
}

async fn refused_by_tls(url: &str, words: &str) {
    let error = error_of(url).await;
    assert_eq!(error.code(), Code::NoTls, "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

/// Joins, claims, commits, and gets a hint: both connections and the watch.
async fn works(url: &str) {
    let store = try_open(url).await.unwrap();
    let a = join(&store, "a").await;
    let mut watch = store.watch(&group()).await.unwrap();
    let held = hold(&store, &a, &format!("d{:x}", unique())).await;
    let changed = tokio::time::timeout(Duration::from_secs(60), watch.changed());
    changed.await.expect("no hint").unwrap();
    commit(&store, &a, &held, 0).await.unwrap();
    assert!(is_kept(&keep(&store, &a, &held).await));
    assert!(!format!("{store:?} {watch:?}").contains("horse"));
}

#[tokio::test]
async fn everything_works_encrypted() {
    let certificates = certificates();
    let server = encrypted(&certificates, false);
    let url = format!("{}?{}", server.url(), root(&certificates));
    works(&url).await;
    works(&url.replace("127.0.0.1", "localhost")).await;
}

/// The connections and the watch are restored automatically, again encrypted.
#[tokio::test]
async fn an_encrypted_connection_comes_back() {
    let certificates = certificates();
    let server = encrypted(&certificates, false);
    let url = format!("{}?{}", server.url(), root(&certificates));
    let store = try_open(&url).await.unwrap();
    let mut watch = store.watch(&group()).await.unwrap();
    server.cli(&["client", "kill", "type", "normal"]).unwrap();
    server.cli(&["client", "kill", "type", "pubsub"]).unwrap();
    settled(|| store.groups()).await;
    // Reconnecting yields a hint.
    let changed = tokio::time::timeout(Duration::from_secs(60), watch.changed());
    changed.await.expect("no hint").unwrap();
    let wish = wish("a");
    settled(|| store.open_session(&wish)).await;
    hold(&store, &wish.session(), "d").await;
    let changed = tokio::time::timeout(Duration::from_secs(60), watch.changed());
    changed.await.expect("no hint").unwrap();
}

#[tokio::test]
async fn a_server_of_a_strange_authority_is_refused() {
    let (good, other) = (certificates(), certificates());
    let server = encrypted(&good, false);
    let words = "not issued by a trusted authority";
    refused_by_tls(&format!("{}?{}", server.url(), root(&other)), words).await;
    // The system's certificate authorities do not know it either.
    refused_by_tls(&server.url(), words).await;
    assert_eq!(error_of(&format!("{}#insecure", server.url())).await.code(), Code::BadUrl);
    assert!(keys(&server).is_empty());
}

#[tokio::test]
async fn another_name_and_an_old_certificate_are_refused() {
    let names = vec!["elsewhere.example".to_owned()];
    let options = CertificateOptions { names, ..CertificateOptions::default() };
    let elsewhere = Certificates::make_with("tenure", options).unwrap();
    let server = encrypted(&elsewhere, false);
    refused_by_tls(&format!("{}?{}", server.url(), root(&elsewhere)), "another name").await;

    let options = CertificateOptions { expired: true, ..CertificateOptions::default() };
    let old = Certificates::make_with("tenure", options).unwrap();
    let server = encrypted(&old, false);
    refused_by_tls(&format!("{}?{}", server.url(), root(&old)), "expired").await;
}

#[tokio::test]
async fn a_client_shows_its_certificate_where_it_is_asked() {
    let certificates = certificates();
    let server = encrypted(&certificates, true);
    let url = format!("{}?{}", server.url(), root(&certificates));
    works(&format!("{url}&{}", identity(&certificates))).await;
    refused_by_tls(&url, "asks for a client certificate").await;
    let strange = Certificates::make("tenure").unwrap();
    let url = format!("{url}&{}", identity(&strange));
    refused_by_tls(&url, "does not accept the client certificate").await;
}

#[tokio::test]
async fn a_wrong_password_is_denied_and_never_shown() {
    let certificates = certificates();
    let server = encrypted(&certificates, false);
    let at = format!("127.0.0.1:{}/0?{}", server.port(), root(&certificates));
    for user in ["", ":battery-staple@", "nobody:battery-staple@"] {
        let error = error_of(&format!("rediss://{user}{at}")).await;
        assert_eq!(error.code(), Code::Denied, "{error}");
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("battery"), "{shown}");
    }
}

/// A plain and an encrypted side do not understand each other: the error hints at the cause.
#[tokio::test]
async fn a_plain_client_and_an_encrypted_server_do_not_wait_for_each_other() {
    let certificates = certificates();
    let encrypted = encrypted(&certificates, false);
    let error = error_of(&encrypted.url().replace("rediss:", "redis:")).await;
    assert_eq!(error.code(), Code::Unreachable);
    assert!(error.to_string().contains("rediss://"), "{error}");

    let plain = server();
    let url = plain.url().replace("redis:", "rediss:");
    let error = error_of(&format!("{url}?{}", root(&certificates))).await;
    // The server takes the TLS greeting for a command: it answers, or waits for the rest.
    assert!(matches!(error.code(), Code::NoTls | Code::Unreachable), "{error}");
    assert!(error.to_string().contains("speak TLS"), "{error}");
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_named() {
    let certificates = certificates();
    let (certificate, key) = certificates.client();
    let (certificate, key) = (certificate.display(), key.display());
    for (parameters, words) in [
        ("cacert=/no/such.pem".to_owned(), "/no/such.pem cannot be read"),
        (format!("cacert={key}"), "contains no PEM certificate"),
        (
            format!("cert={certificate}&key={certificate}"),
            "contains no unencrypted PEM private key",
        ),
    ] {
        refused_by_tls(&format!("rediss://127.0.0.1:1/0?{parameters}"), words).await;
    }
    let error = error_of(&format!("rediss://127.0.0.1:1/0?cert={certificate}")).await;
    assert_eq!(error.code(), Code::BadUrl);
    // With valid files, a port without a server is the usual error.
    let error = error_of(&format!("rediss://127.0.0.1:1/0?{}", root(&certificates))).await;
    assert_eq!(error.code(), Code::Unreachable);
}
