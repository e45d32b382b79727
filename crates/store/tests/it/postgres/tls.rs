//! Encrypted connections: trust, and the errors of refused connections.

use std::path::Path;

use tenure_core::store::Committed;
use tenure_core::{Code, GroupName, StoreError};
use testkit::{CertificateOptions, Certificates, PostgresOptions, PostgresServer};

use super::Place;
use crate::player::{LONG, Player, or_hang};

/// The user that [`Postgres`] knows, for whom a client's certificate must be issued.
const USER: &str = "tenure";

fn certificates() -> Certificates {
    Certificates::make(USER).unwrap()
}

/// Starts a server that accepts only encrypted connections.
fn server(certificates: &Certificates, ask_clients: bool) -> PostgresServer {
    let tls = Some(certificates.for_server(ask_clients));
    PostgresServer::start(PostgresOptions { tls, ..PostgresOptions::default() }).unwrap()
}

fn with(server: &PostgresServer, parameters: &str) -> Place {
    Place::on(format!("{}?{parameters}", server.url()))
}

fn root(certificates: &Certificates) -> String {
    format!("sslrootcert={}", certificates.authority().display())
}

fn identity((certificate, key): (impl AsRef<Path>, impl AsRef<Path>)) -> String {
    let (certificate, key) = (certificate.as_ref().display(), key.as_ref().display());
    format!("sslcert={certificate}&sslkey={key}")
}

async fn refusal(place: &Place) -> StoreError {
    let error = or_hang(place.try_open()).await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused(_)), "{error}");
    error
}

/// Asserts that connecting fails with a TLS error that has these words and no password.
async fn refused_by_tls(server: &PostgresServer, parameters: &str, words: &str) {
    let error = refusal(&with(server, parameters)).await;
    assert_eq!(error.code(), Code::NoTls, "{parameters}: {error}");
    assert!(error.to_string().contains(words), "{parameters}: {error}");
    let url = server.url();
    let password = url.split(':').nth(2).unwrap().split('@').next().unwrap();
    assert!(!format!("{error} {error:?}").contains(password), "{error}");
}

/// Joins, claims, commits, and gets a hint: pool, keep-alives and listener.
async fn works(place: &Place) {
    let store = place.open().await;
    let a = Player::join(&store, "a", LONG).await;
    let mut watch = store.watch(&GroupName::new("g").unwrap()).await.unwrap();
    let hold = a.hold("d").await;
    or_hang(watch.changed()).await.unwrap();
    assert!(matches!(a.commit(&hold, 0, "cursor").await, Committed::Saved(_)));
    assert!(a.keeps(&hold).await);
}

/// Returns how many of the store's connections are encrypted, and how many are not.
fn connections(server: &PostgresServer) -> (u32, u32) {
    let sql = "select count(*) filter (where ssl), count(*) filter (where not ssl)
               from pg_stat_ssl join pg_stat_activity using (pid)
               where application_name = 'tenure'";
    let counted = server.sql(sql).unwrap();
    let (yes, no) = counted.split_once('|').unwrap();
    (yes.parse().unwrap(), no.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_works_encrypted_and_nothing_is_sent_in_the_clear() {
    let certificates = certificates();
    let server = server(&certificates, false);
    // Channel binding ties the password to the connection: no man in the middle can pass it on.
    let parameters = format!("sslmode=verify-full&channel_binding=require&{}", root(&certificates));
    let place = with(&server, &parameters);
    works(&place).await;
    let store = place.open().await;
    let a = Player::join(&store, "a", LONG).await;
    let _watch = store.watch(&GroupName::new("g").unwrap()).await.unwrap();
    assert!(matches!(a.keep_alive(&[]).await, tenure_core::store::KeptAlive::Kept { .. }));
    let (encrypted, clear) = connections(&server);
    assert!(encrypted >= 3, "{encrypted} for data, keep-alives and hints");
    assert_eq!(clear, 0);
    // The pooler detection sees the right port through TLS, too.
    assert!(format!("{store:?}").contains("direct: true"), "{store:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_trusted_as_far_as_sslmode_says() {
    let good = certificates();
    let server = server(&good, false);
    let other = certificates();
    for parameters in ["", "sslmode=prefer", "sslmode=require"] {
        works(&with(&server, parameters)).await;
    }
    for mode in ["require", "verify-ca", "verify-full", "prefer"] {
        works(&with(&server, &format!("sslmode={mode}&{}", root(&good)))).await;
        let parameters = format!("sslmode={mode}&{}", root(&other));
        refused_by_tls(&server, &parameters, "not issued by a trusted authority").await;
    }
    // Without a mode, a given certificate authority is checked; without one, the system's are.
    refused_by_tls(&server, &root(&other), "not issued by a trusted authority").await;
    for mode in ["sslmode=verify-full", "sslmode=verify-ca", "sslrootcert=system"] {
        refused_by_tls(&server, mode, "not issued by a trusted authority").await;
    }
    // An address suffices where no host name is checked.
    let url = server.url();
    let (user, _) = url.split_once('@').unwrap();
    let address = format!("hostaddr=127.0.0.1&port={}", server.port());
    works(&Place::on(format!("{user}@/postgres?{address}&sslmode=require"))).await;
    let refused = refusal(&with(&server, "sslmode=disable")).await;
    assert_eq!(refused.code(), Code::Denied);
    assert!(refused.to_string().contains("no encryption"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_matters_under_verify_full_alone() {
    let names = vec!["elsewhere.example".to_owned()];
    let options = CertificateOptions { names, ..CertificateOptions::default() };
    let certificates = Certificates::make_with(USER, options).unwrap();
    let server = server(&certificates, false);
    let root = root(&certificates);
    refused_by_tls(&server, &format!("sslmode=verify-full&{root}"), "another name").await;
    refused_by_tls(&server, &root, "another name").await;
    works(&with(&server, &format!("sslmode=verify-ca&{root}"))).await;
    // Any host name can be given for an address, as in libpq.
    let url = server.url().replacen("127.0.0.1", "elsewhere.example", 1);
    let parameters = format!("hostaddr=127.0.0.1&sslmode=verify-full&{root}");
    works(&Place::on(format!("{url}?{parameters}"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_certificate_is_refused() {
    let options = CertificateOptions { expired: true, ..CertificateOptions::default() };
    let certificates = Certificates::make_with(USER, options).unwrap();
    let server = server(&certificates, false);
    for mode in ["verify-full", "verify-ca", "require"] {
        let parameters = format!("sslmode={mode}&{}", root(&certificates));
        refused_by_tls(&server, &parameters, "expired").await;
    }
}

/// One certificate on both sides: an authority, which a server's certificate must not be otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn a_self_signed_certificate_is_trusted_by_those_who_have_it() {
    let options = CertificateOptions { self_signed: true, ..CertificateOptions::default() };
    let own = Certificates::make_with(USER, options.clone()).unwrap();
    let (running, other) = (server(&own, false), certificates());
    for mode in ["verify-ca", "verify-full"] {
        works(&with(&running, &format!("sslmode={mode}&{}", root(&own)))).await;
        let parameters = format!("sslmode={mode}&{}", root(&other));
        refused_by_tls(&running, &parameters, "self-signed and not trusted").await;
    }
    let names = vec!["elsewhere.example".to_owned()];
    for (options, words) in [
        (CertificateOptions { names, ..options.clone() }, "another name"),
        (CertificateOptions { expired: true, ..options }, "expired"),
    ] {
        let own = Certificates::make_with(USER, options).unwrap();
        let parameters = format!("sslmode=verify-full&{}", root(&own));
        refused_by_tls(&server(&own, false), &parameters, words).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_shows_its_certificate_where_it_is_asked() {
    let certificates = certificates();
    let server = server(&certificates, true);
    let trusted = format!("sslmode=verify-full&{}", root(&certificates));
    works(&with(&server, &format!("{trusted}&{}", identity(certificates.client())))).await;

    let without = refusal(&with(&server, &trusted)).await;
    assert_eq!(without.code(), Code::Denied);
    assert!(without.to_string().contains("client certificate"), "{without}");
    // One issued by another authority.
    let strange = Certificates::make(USER).unwrap();
    let parameters = format!("{trusted}&{}", identity(strange.client()));
    refused_by_tls(&server, &parameters, "does not accept the client certificate").await;
    // A valid one, issued for another user.
    let parameters = format!("{trusted}&{}", identity(certificates.server()));
    let other = refusal(&with(&server, &parameters)).await;
    assert_eq!(other.code(), Code::Denied, "{other}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_denied_and_never_printed() {
    let certificates = certificates();
    let server = server(&certificates, false);
    let url = server.url();
    let (_, at) = url.split_once('@').unwrap();
    let url = format!("postgres://{USER}:wr0ng-s3cret@{at}?{}", root(&certificates));
    let place = Place::on(url);
    let error = refusal(&place).await;
    assert_eq!(error.code(), Code::Denied);
    for text in [error.to_string(), format!("{error:?}"), format!("{:?}", place.settings())] {
        assert!(!text.contains("wr0ng-s3cret"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_is_used_only_if_that_was_left_open() {
    let server = PostgresServer::start(PostgresOptions::default()).unwrap();
    for mode in ["require", "verify-ca&sslrootcert=system", "verify-full"] {
        let error = refusal(&with(&server, &format!("sslmode={mode}"))).await;
        let expected = if mode.contains("system") { Code::BadUrl } else { Code::NoTls };
        assert_eq!(error.code(), expected, "{mode}: {error}");
    }
    refused_by_tls(&server, "sslmode=require", "does not support TLS").await;
    works(&with(&server, "sslmode=prefer")).await;
    works(&with(&server, "sslmode=disable&sslrootcert=/no/such/file")).await;
}

/// Reported before anything is sent, with the path but nothing of the file's content.
#[tokio::test]
async fn a_file_that_cannot_be_used_is_named() {
    let certificates = certificates();
    let (certificate, key) = certificates.client();
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "-----BEGIN CERTIFICATE-----\ns3cret-s3cret\n").unwrap();
    let none = folder.path().join("none.pem");
    let [certificate, key, text, none] =
        [certificate, key, text, none].map(|path| path.display().to_string());
    let strange = Certificates::make(USER).unwrap();
    let other = strange.client().1.display().to_string();
    for (parameters, named, words) in [
        (format!("sslrootcert={none}"), &none, "cannot be read"),
        (format!("sslrootcert={text}"), &text, "contains no PEM certificate"),
        (format!("sslrootcert={key}"), &key, "contains no PEM certificate"),
        (format!("sslmode=require&sslcert={none}&sslkey={key}"), &none, "cannot be read"),
        (
            format!("sslmode=require&sslcert={certificate}&sslkey={text}"),
            &text,
            "contains no unencrypted PEM private key",
        ),
        (format!("sslmode=require&sslcert={certificate}&sslkey={other}"), &other, "cannot be used"),
    ] {
        let place = Place::on(format!("postgres://127.0.0.1:1/db?{parameters}"));
        let error = refusal(&place).await;
        assert_eq!(error.code(), Code::NoTls, "{parameters}: {error}");
        let shown = error.to_string();
        assert!(shown.contains(named.as_str()) && shown.contains(words), "{shown}");
        assert!(!shown.contains("s3cret"), "{shown}");
    }
}
