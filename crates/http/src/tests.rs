use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

fn origin(url: &str) -> Result<Origin, OriginError> {
    Origin::parse(&url.parse().unwrap())
}

fn client(origin: Origin) -> HttpClient {
    HttpClient::new(origin, Duration::from_secs(20), Duration::from_secs(20))
}

fn get() -> Request<Full<Bytes>> {
    Request::get("/").header("host", "h").body(Full::default()).unwrap()
}

/// Starts a server that writes this to one connection, and then waits for the client to close it.
async fn server(response: &'static str) -> (HttpClient, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let served = tokio::spawn(async move {
        let mut socket = listener.accept().await.unwrap().0;
        let mut received = vec![0; 1024];
        let length = socket.read(&mut received).await.unwrap();
        received.truncate(length);
        socket.write_all(response.as_bytes()).await.unwrap();
        if !response.contains("12345") {
            let _ = socket.read_to_end(&mut received).await;
        }
        received
    });
    (client(origin(&format!("http://{at}")).unwrap()), served)
}

#[test]
fn origins_have_a_host_and_a_port() {
    for (url, host, port, private) in [
        ("http://h:8420", "h", 8420, false),
        ("https://h/a?b", "h", 443, true),
        ("http://[::1]/", "::1", 80, true),
        ("http://localhost", "localhost", 80, true),
    ] {
        let origin = origin(url).unwrap();
        assert_eq!((origin.host(), origin.port(), origin.is_private()), (host, port, private));
    }
    assert_eq!(origin("ftp://h"), Err(OriginError::Scheme));
    assert_eq!(origin("/path"), Err(OriginError::Scheme));
    assert_eq!(origin("http://u:s3cret@h"), Err(OriginError::Credentials));
}

#[test]
fn a_bearer_token_is_not_printed() {
    assert!(!format!("{:?}", bearer("s3cret").unwrap()).contains("s3cret"));
    assert!(bearer("s3cret\n2").is_err());
}

#[tokio::test]
async fn a_response_has_a_status_headers_and_a_limited_body() {
    let text = "HTTP/1.1 404 Not Found\r\nx-a: b\r\ncontent-length: 4\r\n\r\nbody";
    for (limit, expected) in [(4, Some("body")), (3, None)] {
        let (client, served) = server(text).await;
        let response = client.connect().await.unwrap().send(get()).await.unwrap();
        assert_eq!(
            (response.status(), &response.headers()["x-a"]),
            (StatusCode::NOT_FOUND, &"b".parse().unwrap())
        );
        match (response.read(limit).await, expected) {
            (Ok(body), Some(expected)) => assert_eq!(body, expected),
            (Err(HttpError::TooLarge { max_bytes }), None) => assert_eq!(max_bytes, limit),
            other => panic!("{other:?}"),
        }
        // The server saw the end of the connection.
        assert!(served.await.unwrap().starts_with(b"GET / HTTP/1.1\r\n"));
    }
}

#[tokio::test]
async fn a_dropped_response_closes_the_connection() {
    let (client, served) = server("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n").await;
    drop(client.connect().await.unwrap().send(get()).await.unwrap());
    served.await.unwrap();
}

#[tokio::test]
async fn failures_say_whether_the_request_left() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = nobody.local_addr().unwrap();
    drop(nobody);
    let refused = client(origin(&format!("http://{at}")).unwrap()).connect().await.unwrap_err();
    assert!(matches!(refused, HttpError::Connect(_)) && !refused.may_have_been_sent());

    let (client, served) = server("SSH-2.0\r\n").await;
    let broken = client.connect().await.unwrap().send(get()).await.unwrap_err();
    assert!(matches!(broken, HttpError::Exchange(_)) && broken.may_have_been_sent());
    served.await.unwrap();

    let (client, _) = server("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n12345").await;
    let response = client.connect().await.unwrap().send(get()).await.unwrap();
    assert!(matches!(response.read(64).await, Err(HttpError::Body(_))));
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    let (mut client, served) = server("").await;
    client.response_timeout = Duration::from_millis(10);
    let late = client.connect().await.unwrap().send(get()).await.unwrap_err();
    assert!(matches!(late, HttpError::ResponseTimeout(_)));
    served.await.unwrap();
}
