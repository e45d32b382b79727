//! Lists from web servers: a real one, and one that sends exactly what a test needs.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tenure_core::Code;
use tenure_targets::TargetsUrl;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::{MOST, listed, refused, short, too_many};

/// Starts a server whose responses come from a function.
async fn serve(answer: fn(&Request<Incoming>) -> Response<Full<Bytes>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let service =
                service_fn(move |request| async move { Ok::<_, Infallible>(answer(&request)) });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
        }
    });
    address
}

fn text(body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    Response::new(Full::new(body.into()))
}

/// Starts a server that reads a request and sends these bytes, whatever they are.
async fn say(bytes: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            read_head(&mut socket).await;
            socket.write_all(bytes).await.unwrap();
        }
    });
    format!("http://{address}/")
}

async fn read_head(socket: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.unwrap());
    }
}

#[tokio::test]
async fn a_list_is_asked_for_and_read() {
    let address = serve(|request| {
        assert_eq!(request.uri().to_string(), "/list?of=mine");
        assert_eq!(request.headers()["accept"], "application/json");
        assert!(!request.headers().contains_key("authorization"));
        text(r#"{"targets": ["b", {"id": "a", "zone": "eu", "paused": true}, "b"]}"#)
    })
    .await;
    let port = address.port();
    assert_eq!(listed(&format!("http://{address}/list?of=mine")).await, ["a@eu!", "b"]);
    assert_eq!(listed(&format!("http://localhost:{port}/list?of=mine")).await, ["a@eu!", "b"]);
}

#[tokio::test]
async fn a_token_is_sent_to_whom_it_is_for() {
    let address = serve(|request| {
        let sent = request.headers().get("authorization").map(|value| value.to_str().unwrap());
        text(format!("[{:?}]", sent.unwrap_or_default()))
    })
    .await;
    let token = || Some("s3cret".to_owned());
    let open = |host: &str| {
        let url = format!("http://{host}:{}/", address.port());
        TargetsUrl::parse(&url).unwrap().open_with_token(token())
    };
    assert_eq!(short(&open("127.0.0.1").list(9).await.unwrap()), ["Bearer s3cret"]);
    // Anybody on the network path could read the token.
    let error = open("192.0.2.1").list(9).await.unwrap_err();
    assert!(error.to_string().contains("only over https:// or to this host"), "{error}");
    assert!(!error.to_string().contains("s3cret"), "{error}");
}

#[tokio::test]
async fn an_answer_that_is_no_whole_list_is_an_error() {
    for (answer, says) in [
        (&b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\n[]"[..], "500"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "204"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "404"),
        // A redirect is not followed: other servers must not get the token.
        (b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", "302"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n[\"a\"]", "closed during"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[\"a\"]\r\n", "closed during"),
        (b"HTTP/1.1 200 OK\r\n\r\n[\"a\", \"b", "JSON"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n[]", "compressed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "JSON"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n<html/>", "JSON"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n[\"\"]", "entry 1: a duty id is empty"),
        (b"", "closed before a valid response"),
        (b"SSH-2.0-OpenSSH\r\n", "closed before a valid response"),
    ] {
        refused(&say(answer).await, says).await;
    }
    // The same test server can send a valid list.
    assert_eq!(listed(&say(b"HTTP/1.1 200 OK\r\n\r\n[\"a\"]").await).await, ["a"]);
}

#[tokio::test]
async fn a_million_entries_are_refused() {
    let address = serve(|_| {
        let numbers: Vec<String> = (0..1_000_000).map(|n| n.to_string()).collect();
        text(format!("[{}]", numbers.join(",")))
    })
    .await;
    let url = format!("http://{address}/");
    too_many(&url, MOST).await;
    // With a small limit not even the whole body is read.
    let error = TargetsUrl::parse(&url).unwrap().open().list(10).await.unwrap_err();
    assert_eq!(error.code(), Code::BadTargets);
    assert!(error.to_string().contains("more than 22528 bytes"), "{error}");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let limit = Duration::from_millis(200);
    let targets = TargetsUrl::parse(&url).unwrap().with_timeout(limit).open();
    let error = targets.list(9).await.unwrap_err();
    assert!(error.to_string().contains("took longer than 200ms"), "{error}");
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn an_encrypted_server_has_to_be_whom_it_says() {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};

    let certificates = testkit::Certificates::make("tenure").unwrap();
    let (certificate, key) = certificates.server();
    let chain = CertificateDer::pem_file_iter(certificate).unwrap().map(Result::unwrap).collect();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap())
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(socket).await else { continue };
            let service =
                service_fn(|_| async { Ok::<_, Infallible>(text(r#"["kept to ourselves"]"#)) });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    let authority = certificates.authority();
    let url = format!("https://localhost:{port}/");
    let trusted = format!("{url}#cacert={}", authority.display());
    assert_eq!(listed(&trusted).await, ["kept to ourselves"]);
    refused(&url, "not issued by a trusted authority").await;
}
