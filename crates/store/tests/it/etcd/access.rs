//! Encryption, client certificates and passwords.

use tenure_core::{Code, Store};
use testkit::{Certificates, EtcdOptions};

use super::kit::*;

fn encrypted(certificates: &Certificates, client_certificates: bool) -> Server {
    let tls = Some(certificates);
    start(EtcdOptions { tls, client_certificates, ..EtcdOptions::default() })
}

async fn works(store: &dyn Store) {
    let a = join(store, "a").await;
    let held = hold(store, &a, "d").await;
    assert_eq!(commit(store, &a, &held, 0).await.unwrap(), saved(1));
    assert!(is_kept(&keep(store, &a, &held).await));
}

fn tls_fact(survey: &tenure_core::guarantee::Survey, name: &str) -> String {
    survey.facts.iter().find(|fact| fact.setting == name).unwrap().value.clone().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_known_by_its_authority() {
    let (certificates, stranger) =
        (Certificates::make("tenure").unwrap(), Certificates::make("tenure").unwrap());
    let server = encrypted(&certificates, false);
    let url = |given: &Certificates| {
        format!("{}?tls=on&cacert={}", server.url(), given.authority().display())
    };
    let store = try_open(&url(&certificates)).await.unwrap();
    works(&*store).await;
    assert_eq!(tls_fact(&store.survey().await.unwrap(), "tls"), "on");

    let error = try_open(&url(&stranger)).await.unwrap_err();
    assert_eq!(error.code(), Code::NoTls, "{error}");
    assert!(error.to_string().contains("not issued by a trusted authority"), "{error}");
    // Neither the system's certificate authorities nor a plain connection suffice.
    let error = try_open(&format!("{}?tls=on", server.url())).await.unwrap_err();
    assert_eq!(error.code(), Code::NoTls, "{error}");
    assert!(try_open(&server.url()).await.is_err());
}

/// A server whose certificate is not trusted counts as unreachable: the others are used.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_a_wrong_certificate_stops_no_other() {
    let (certificates, stranger) =
        (Certificates::make("tenure").unwrap(), Certificates::make("tenure").unwrap());
    let (good, bad) = (encrypted(&certificates, false), encrypted(&stranger, false));
    let url = |first: &Server, second: &Server| {
        let authority = certificates.authority();
        let (first, second) = (first.hosts(), second.hosts());
        format!("etcd://{first},{second}?tls=on&cacert={}", authority.display())
    };
    works(&*try_open(&url(&bad, &good)).await.unwrap()).await;
    let error = try_open(&url(&bad, &bad)).await.unwrap_err();
    assert_eq!(error.code(), Code::NoTls, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_can_want_a_certificate_of_the_client() {
    let certificates = Certificates::make("tenure").unwrap();
    let server = encrypted(&certificates, true);
    let (certificate, key) = certificates.client();
    let plain = format!("{}?cacert={}", server.url(), certificates.authority().display());
    let shown = format!("{plain}&cert={}&key={}", certificate.display(), key.display());
    works(&*try_open(&shown).await.unwrap()).await;
    let error = try_open(&plain).await.unwrap_err();
    assert_eq!(error.code(), Code::NoTls, "{error}");
    assert!(error.to_string().contains("client certificate"), "{error}");
    let error = try_open(&format!("{plain}&cert=/absent&key=/absent")).await.unwrap_err();
    assert_eq!(error.code(), Code::NoTls, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_asked_for_and_not_shown() {
    let password = Some("s3cret".to_owned());
    let server = start(EtcdOptions { password, ..EtcdOptions::default() });
    let store = open(&server).await;
    works(&*store).await;
    assert_eq!(tls_fact(&store.survey().await.unwrap(), "auth"), "on");
    assert!(!format!("{store:?}").contains("s3cret"));

    let wrong = server.url().replace("s3cret", "wr0ng");
    let error = try_open(&wrong).await.unwrap_err();
    assert_eq!(error.code(), Code::Denied, "{error}");
    assert!(!error.to_string().contains("wr0ng"));
    let error = try_open(&format!("etcd://{}", server.hosts())).await.unwrap_err();
    assert_eq!(error.code(), Code::Denied, "{error}");
}

/// A restarted server has forgotten its tokens, and tokens expire.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_has_ended_is_fetched_anew() {
    let password = Some("s3cret".to_owned());
    let server = start(EtcdOptions { password, ..EtcdOptions::default() });
    let store = open(&server).await;
    let a = join(&*store, "a").await;
    let held = hold(&*store, &a, "d").await;
    server.kill(0).unwrap();
    server.start_again(0).unwrap();
    assert_eq!(commit(&*store, &a, &held, 0).await.unwrap(), saved(1));
    assert!(is_kept(&keep(&*store, &a, &held).await));
    // On an open connection, disabling and enabling authentication invalidates every token.
    server.etcdctl(&["auth", "disable"]).unwrap();
    server.etcdctl(&["auth", "enable"]).unwrap();
    assert_eq!(commit(&*store, &a, &held, 1).await.unwrap(), saved(2));
    assert!(is_kept(&keep(&*store, &a, &held).await));
}

/// A password for a server without authentication is unnecessary, but not an error.
#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_nobody_asks_for_does_no_harm() {
    let server = server();
    let store = try_open(&server.url().replace("etcd://", "etcd://me:s3cret@")).await.unwrap();
    works(&*store).await;
    assert_eq!(tls_fact(&store.survey().await.unwrap(), "auth"), "off");
}
