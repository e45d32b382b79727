use super::*;
use crate::tests::{Server, envelope, get, post};

const INGEST: &str = "/api/switchboard/ingest";

fn impatient() -> ClientTimeouts {
    ClientTimeouts {
        head: Duration::from_millis(100),
        body: Duration::from_millis(400),
        body_stall: Duration::from_millis(100),
        tick: Duration::from_millis(50),
        ..ClientTimeouts::default()
    }
}

#[tokio::test]
async fn an_event_is_stored_once_and_shown() {
    let server = Server::start(ServerSettings::default()).await;
    let mut client = server.connect().await;
    let request = post(INGEST, "", &envelope("1"));
    client.send(&request).await;
    let first = client.answer().await.unwrap();
    assert_eq!((first.status, &first.body["duplicate"]), (202, &false.into()));
    // The same connection serves another request.
    client.send(&request).await;
    let second = client.answer().await.unwrap();
    assert_eq!((second.status, &second.body["duplicate"]), (202, &true.into()));
    assert_eq!(second.body["request_id"], first.body["request_id"]);
    let page = server.ask(&get("/api/switchboard/inbox?limit=5")).await;
    let data = page.body["data"].as_array().unwrap();
    assert_eq!(data.len(), 1);
    assert_eq!(data[0]["request_id"], first.body["request_id"]);
    let id = first.body["request_id"].as_str().unwrap();
    let one = server.ask(&get(&format!("/api/switchboard/inbox/{id}"))).await;
    let mut shown = one.body["data"].clone();
    let outcomes = shown.as_object_mut().unwrap().remove("dispatch_outcomes").unwrap();
    assert_eq!((&shown, &outcomes["acked"]), (&data[0], &serde_json::json!([])));
    let metrics = server.ask(&get("/metrics")).await;
    assert!(metrics.head.contains("text/plain; version=0.0.4"));
}

/// An idle connection is closed; one with an open stream is not idle.
#[tokio::test]
async fn a_stream_outlives_who_rests() {
    let timeouts = ClientTimeouts { idle: Duration::from_millis(200), ..impatient() };
    let server = Server::start(ServerSettings { timeouts, ..ServerSettings::default() }).await;
    let mut stream = server.connect().await;
    stream.send(&get("/sse")).await;
    let endpoint = stream.event().await;
    for round in 1..4 {
        let mut resting = server.connect().await;
        resting.send(&get("/health")).await;
        assert_eq!(resting.answer().await.unwrap().status, 200);
        assert!(resting.is_closed().await);
        let message = format!(r#"{{"jsonrpc":"2.0","id":{round},"method":"ping"}}"#);
        assert_eq!(server.ask(&post(&endpoint, "", &message)).await.status, 202);
        assert!(stream.event().await.contains(&format!("\"id\":{round}")));
    }
}

#[tokio::test]
async fn every_error_is_json() {
    let server = Server::start(ServerSettings::default()).await;
    let odd =
        |line: &str| format!("{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    let batch = "/api/switchboard/ingest/batch";
    let cases = [
        (get("/nothing"), 404, "not_found"),
        (get("/api/switchboard/echo"), 405, "method_not_allowed"),
        (post("/api/switchboard/echo", "", "{}"), 404, "not_found"),
        (odd("DELETE /health"), 405, "method_not_allowed"),
        (odd(&format!("POST {INGEST}")), 415, "unsupported_media_type"),
        (post(INGEST, "", "{"), 422, "validation_error"),
        (post(INGEST, "Content-Encoding: gzip\r\n", "{}"), 415, "unsupported_media_type"),
        (post(INGEST, "Tenure-Epoch: 1\r\n", "{}"), 400, "bad_request"),
        (post(&format!("{INGEST}?x=1"), "", "{}"), 400, "bad_request"),
        (post(batch, "", "{}"), 400, "bad_request"),
        (post(batch, "", &format!("[{}1]", "1,".repeat(1000))), 413, "too_large"),
        (get("/api/switchboard/inbox?limit=0"), 400, "bad_request"),
        (get("/api/switchboard/inbox?after=%zz"), 400, "bad_request"),
        (get("/api/switchboard/inbox/x"), 404, "not_found"),
        (get("/api/switchboard/dead-letters?state=x"), 400, "bad_request"),
        (post("/api/switchboard/fences/reset", "", "{}"), 422, "validation_error"),
        (get("/health").replace("localhost", "example.com"), 200, ""),
        (get("/metrics").replace("localhost", "example.com"), 401, "invalid_token"),
    ];
    for (request, status, error) in cases {
        let told = server.ask(&request).await;
        assert_eq!(told.status, status, "{request}\n{told:?}");
        assert_eq!(told.body["error"].as_str().unwrap_or_default(), error, "{request}");
    }
    let head = odd("HEAD /health");
    let mut client = server.connect().await;
    client.send(&head).await;
    client.send(&get("/ready")).await;
    client.0.set_nodelay(true).unwrap();
    let mut text = [0; 12];
    tokio::io::AsyncReadExt::read_exact(&mut client.0, &mut text).await.unwrap();
    assert_eq!(&text, b"HTTP/1.1 200");
}

#[tokio::test]
async fn a_batch_has_an_outcome_for_each_and_an_empty_one_announces() {
    let server = Server::start(ServerSettings::default()).await;
    let batch = "/api/switchboard/ingest/batch";
    let body = format!("[{},{{}},{}]", envelope("1"), envelope("1"));
    let told = server.ask(&post(batch, "", &body)).await;
    assert_eq!(told.status, 202);
    let counts = ["accepted", "duplicates", "rejected"].map(|name| told.body[name].as_u64());
    assert_eq!(counts, [Some(1), Some(1), Some(1)]);
    let results = &told.body["results"];
    assert_eq!(results[0]["request_id"], results[2]["request_id"]);
    assert_eq!(results[1]["error"], "validation_error");
    let fence = |epoch: u32| {
        format!("Tenure-Duty: g/d\r\nTenure-Epoch: {epoch}\r\nTenure-Instance: i{epoch}\r\n")
    };
    assert_eq!(server.ask(&post(batch, &fence(2), "[]")).await.status, 202);
    let late = server.ask(&post(INGEST, &fence(1), &envelope("2"))).await;
    assert_eq!((late.status, late.body["newest_epoch"].as_u64()), (409, Some(2)));
    let fences = server.ask(&get("/api/switchboard/fences")).await;
    assert_eq!(fences.body["data"][0]["instance"], "i2");
}

#[tokio::test]
async fn bodies_have_limits_of_size_time_and_memory() {
    let settings = ServerSettings {
        timeouts: impatient(),
        memory_budget: 3 << 20,
        ..ServerSettings::default()
    };
    let server = Server::start(settings).await;
    let head = |length: &str| {
        format!(
            "POST {INGEST} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             {length}\r\n\r\n"
        )
    };
    // A declared length above the limit: nothing is read.
    let told = server.ask(&head("Content-Length: 1048577")).await;
    assert_eq!((told.status, told.body["limit_bytes"].as_u64()), (413, Some(1 << 20)));
    // A body that never arrives.
    let mut stalled = server.connect().await;
    stalled.send(&head("Content-Length: 1048576")).await;
    let told = server.ask(&get("/health")).await;
    assert_eq!(told.status, 200);
    assert_eq!(stalled.answer().await.unwrap().status, 408);
    assert!(stalled.is_closed().await);
    // A chunked body that never ends.
    let mut endless = server.connect().await;
    endless.send(&head("Transfer-Encoding: chunked")).await;
    let chunk = format!("8000\r\n{}\r\n", "x".repeat(0x8000));
    for _ in 0..33 {
        endless.send(&chunk).await;
    }
    let told = endless.answer().await.unwrap();
    assert!(told.status == 413 || told.status == 429, "{told:?}");
    // Reserved memory was released: a large body fits again.
    let large = format!("{{\"x\":\"{}\"}}", "y".repeat(1_000_000));
    assert_eq!(server.ask(&post(INGEST, "", &large)).await.status, 422);
    // A body that exceeds the budget is not read.
    let batch = "/api/switchboard/ingest/batch";
    let told = server.ask(&head("Content-Length: 2097152").replace(INGEST, batch)).await;
    assert_eq!((told.status, told.body["error"].as_str()), (429, Some("overload_rejected")));
    assert!(told.head.contains("retry-after: 1"));
    // With `Expect: 100-continue`, the client sends the body only after it was requested.
    let mut polite = server.connect().await;
    let body = envelope("1");
    let length = format!("Content-Length: {}\r\nExpect: 100-continue", body.len());
    polite.send(&head(&length)).await;
    assert_eq!(polite.answer().await.unwrap().status, 100);
    polite.send(&body).await;
    assert_eq!(polite.answer().await.unwrap().status, 202);
}

#[tokio::test]
async fn a_head_that_does_not_come_or_is_too_large_ends_the_connection() {
    let server =
        Server::start(ServerSettings { timeouts: impatient(), ..ServerSettings::default() }).await;
    let mut slow = server.connect().await;
    slow.send("GET /health HTTP/1.1\r\nHo").await;
    assert!(slow.is_closed().await);
    let mut large = server.connect().await;
    large.send(&format!("GET /health HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(20_000))).await;
    assert_eq!(large.answer().await.unwrap().status, 431);
}

/// A connection that never sends anything is closed sooner than one idle between two requests.
#[tokio::test]
async fn a_connection_that_says_nothing_is_closed() {
    let timeouts = ClientTimeouts { first_byte: Duration::from_millis(100), ..impatient() };
    let server = Server::start(ServerSettings { timeouts, ..ServerSettings::default() }).await;
    let mut resting = server.connect().await;
    resting.send(&get("/health")).await;
    assert_eq!(resting.answer().await.unwrap().status, 200);
    // Closed long before the idle timeout.
    let mut silent = server.connect().await;
    assert_eq!(timeout(Duration::from_secs(60), silent.is_closed()).await, Ok(true));
    resting.send(&get("/health")).await;
    assert_eq!(resting.answer().await.unwrap().status, 200);
}

/// An address that used up its share is rejected with the reason; other addresses can connect.
#[tokio::test]
async fn one_address_cannot_take_all_connections() {
    let limits = ServerSettings {
        max_connections: 4,
        max_connections_per_address: Some(2),
        ..ServerSettings::default()
    };
    let server = Server::start(limits).await;
    let mut taken = Vec::new();
    for _ in 0..2 {
        let mut client = server.connect().await;
        client.send(&post(INGEST, "", &envelope("1"))).await;
        assert_eq!(client.answer().await.unwrap().status, 202);
        taken.push(client);
    }
    let told = server.ask(&post(INGEST, "", &envelope("2"))).await;
    assert_eq!((told.status, told.body["error"].as_str()), (503, Some("overload_rejected")));
    assert!(told.body["message"].as_str().unwrap().contains("--max-connections-per-address"));
    assert_eq!(server.ask(&get("/ready")).await.status, 200);
    let said = ServerNotice::AddressFull { address: "127.0.0.1".into(), most: 2 };
    let times = server.notices.lock().unwrap().iter().filter(|notice| **notice == said).count();
    assert_eq!(times, 1);
    let elsewhere = tokio::net::TcpSocket::new_v4().unwrap();
    elsewhere.bind(([127, 0, 0, 2], 0).into()).unwrap();
    let mut other = crate::tests::Client(elsewhere.connect(server.handle.address()).await.unwrap());
    other.send(&post(INGEST, "", &envelope("3"))).await;
    assert_eq!(other.answer().await.unwrap().status, 202);
    // Closed connections free their slots.
    drop(taken);
    let timeouts = async {
        while server.ask(&post(INGEST, "", &envelope("4"))).await.status != 202 {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(60), timeouts).await.unwrap();
}

/// All connections behind a proxy come from its address.
#[tokio::test]
async fn a_trusted_proxy_has_no_share() {
    let limits = ServerSettings {
        max_connections_per_address: Some(1),
        limiter: Limiter { trusted_proxies: 1, ..Limiter::default() },
        ..ServerSettings::default()
    };
    let server = Server::start(limits).await;
    let mut taken = Vec::new();
    for number in ["1", "2", "3"] {
        let mut client = server.connect().await;
        client.send(&post(INGEST, "", &envelope(number))).await;
        assert_eq!(client.answer().await.unwrap().status, 202);
        taken.push(client);
    }
    let crowded = |notice: &ServerNotice| matches!(notice, ServerNotice::AddressFull { .. });
    assert!(!server.notices.lock().unwrap().iter().any(crowded));
}

/// Behind an undeclared load balancer, all connections may come from one address.
#[test]
fn most_connections_may_be_of_one_address() {
    let most = |listen: [u8; 4], max_connections, max_connections_per_address, trusted_proxies| {
        let limiter = Limiter { trusted_proxies, ..Limiter::default() };
        let listen = (listen, 8420).into();
        let settings =
            ServerSettings { listen, limiter, max_connections, ..ServerSettings::default() };
        max_per_address(&ServerSettings { max_connections_per_address, ..settings })
    };
    let (here, all) = ([127, 0, 0, 1], [0, 0, 0, 0]);
    assert_eq!(most(here, 1024, None, 0), usize::MAX);
    assert_eq!(most(here, 1024, Some(5), 0), 5);
    assert_eq!(most(all, 1024, None, 0), 768);
    assert_eq!(most(all, 1, None, 0), 1);
    assert_eq!(most(all, 1024, Some(5), 0), 5);
    assert_eq!(most(all, 1024, Some(5), 1), usize::MAX);
}

#[tokio::test]
async fn a_full_server_still_says_that_it_lives() {
    let server =
        Server::start(ServerSettings { max_connections: 1, ..ServerSettings::default() }).await;
    let mut first = server.connect().await;
    first.send(&get("/ready")).await;
    assert_eq!(first.answer().await.unwrap().status, 200);
    let told = server.ask(&get("/health")).await;
    assert_eq!(told.status, 200);
    assert!(told.head.contains("connection: close"));
    let told = server.ask(&post(INGEST, "", &envelope("1"))).await;
    assert_eq!((told.status, told.body["error"].as_str()), (503, Some("overload_rejected")));
    first.send(&post(INGEST, "", &envelope("1"))).await;
    assert_eq!(first.answer().await.unwrap().status, 202);
}

#[tokio::test]
async fn who_waits_is_told_of_the_next_message_and_of_the_end() {
    let settings =
        ServerSettings { lame_duck: Duration::from_secs(60), ..ServerSettings::default() };
    let server = Server::start(settings).await;
    let mut waiting = server.connect().await;
    waiting.send(&get("/api/switchboard/inbox?wait=30")).await;
    assert_eq!(server.ask(&post(INGEST, "", &envelope("1"))).await.status, 202);
    let page = waiting.answer().await.unwrap();
    assert_eq!(page.body["data"][0]["position"], 1);
    waiting.send(&get("/api/switchboard/inbox?wait=30&after=1")).await;
    // Whether it already waits or not, the request is answered.
    let _handle = server.stop();
    let page = waiting.answer().await.unwrap();
    let next = page.body["meta"]["next_after"].as_str().unwrap();
    assert!(page.status == 200 && next.starts_with("1."), "{next}");
}

#[tokio::test]
async fn it_finishes_what_was_begun_and_lets_nobody_new_in() {
    let server = Server::start(ServerSettings::default()).await;
    let notices = Arc::clone(&server.notices);
    let mut idle = server.connect().await;
    idle.send(&get("/ready")).await;
    assert_eq!(idle.answer().await.unwrap().body["status"], "ready");
    let body = envelope("1");
    let request = post(INGEST, "", &body);
    let (head, rest) = request.split_at(request.len() - 10);
    let mut busy = server.connect().await;
    // After `100 Continue` the server is reading the body.
    busy.send(&head.replacen("\r\n", "\r\nExpect: 100-continue\r\n", 1)).await;
    assert_eq!(busy.answer().await.unwrap().status, 100);
    let address = server.handle.address();
    let storage = Arc::clone(&server.storage);
    let handle = server.stop();
    assert!(idle.is_closed().await);
    busy.send(rest).await;
    let told = busy.answer().await.unwrap();
    assert_eq!(told.status, 202);
    assert!(told.head.contains("connection: close"));
    assert!(busy.is_closed().await);
    handle.finished().await;
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
    assert_eq!(storage.last_position().await.unwrap(), 1);
    let notices = notices.lock().unwrap().clone();
    let listening = ServerNotice::Listening { address, tls: false };
    assert_eq!(
        notices,
        [listening, ServerNotice::Open, ServerNotice::Draining, ServerNotice::Stopped]
    );
}

#[tokio::test]
async fn what_does_not_finish_in_time_is_cut_off() {
    let settings = ServerSettings { drain: Duration::from_millis(50), ..ServerSettings::default() };
    let server = Server::start(settings).await;
    let mut stuck = server.connect().await;
    let request = post(INGEST, "Expect: 100-continue\r\n", &envelope("1"));
    stuck.send(&request[..request.len() - 10]).await;
    assert_eq!(stuck.answer().await.unwrap().status, 100);
    let notices = Arc::clone(&server.notices);
    server.stop().finished().await;
    assert!(notices.lock().unwrap().contains(&ServerNotice::CutOff));
}

#[tokio::test]
async fn it_says_that_it_leaves_before_it_closes_the_door() {
    let settings =
        ServerSettings { lame_duck: Duration::from_secs(60), ..ServerSettings::default() };
    let server = Server::start(settings).await;
    let mut client = server.connect().await;
    let notices = Arc::clone(&server.notices);
    let _handle = server.stop();
    while !notices.lock().unwrap().contains(&ServerNotice::Draining) {
        tokio::task::yield_now().await;
    }
    // The notice precedes the phase change, so poll for the latter.
    loop {
        client.send(&get("/ready")).await;
        let told = client.answer().await.unwrap();
        if told.status == 503 {
            assert_eq!(told.body["status"], "draining");
            assert!(told.head.contains("connection: close"));
            break;
        }
    }
}

#[tokio::test]
async fn without_tokens_it_does_not_listen_to_other_machines() {
    let (storage, _folder) = crate::tests::storage().await;
    let settings = ServerSettings { listen: ([0, 0, 0, 0], 0).into(), ..ServerSettings::default() };
    let error = serve(settings, storage, Box::pin(std::future::pending())).await.unwrap_err();
    assert_eq!(error.code(), Code::OpenToAll);
}
