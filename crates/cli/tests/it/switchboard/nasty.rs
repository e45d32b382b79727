//! Input that no client should send.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::json;

use super::{BATCH, INGEST, Place, Server, envelope, on_both_stores};
use crate::running::LIMIT;

on_both_stores! {
    what_json_can_say_is_kept_as_it_was_said
    what_is_too_much_is_refused
    a_row_that_the_store_refuses_fails_alone
    a_batch_that_is_fenced_in_the_middle_tells_what_was_stored
}

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

fn raw_envelope(event: &str, raw: &str, text: &str) -> String {
    let mut given = envelope(event);
    given["payload"] = json!("PAYLOAD");
    let payload = format!(r#"{{"raw":{raw},"normalized_text":"{text}"}}"#);
    given.to_string().replace("\"PAYLOAD\"", &payload)
}

/// NUL, half a surrogate pair, numbers beyond all machine types, duplicate keys, odd spaces.
fn what_json_can_say_is_kept_as_it_was_said(place: &Place) {
    let server = place.serve(&[]);
    let raw = r#"{"nul":"a\u0000b", "half":"\ud83d", "big":1e999,
        "long":123456789012345678901234567890, "twice":1,"twice":2,"u":"\u00e9é"}"#;
    let body = raw_envelope("1", raw, r"half \ud83d and \u0000 nul");
    let answer = server.post_with(INGEST, body.as_bytes(), &JSON);
    let id = answer.is(202)["request_id"].as_str().unwrap().to_owned();
    let again = server.post_with(INGEST, body.as_bytes(), &JSON).is(202);
    assert_eq!((&again["request_id"], &again["duplicate"]), (&json!(id), &json!(true)));
    let shown = text(&server, &format!("{}/{id}", super::INBOX));
    assert!(shown.contains(raw), "{shown}");
    assert!(shown.contains(r"half \ud83d and \u0000 nul"), "{shown}");

    // Names with such characters are refused.
    for bad in [r"a\u0000b", r"\ud83d"] {
        let body = envelope("BAD").to_string().replace("BAD", bad);
        let refused = server.post_with(INGEST, body.as_bytes(), &JSON);
        refused.refused(422, "validation_error");
    }
    assert_eq!(server.get("/health").status, 200);
}

/// Returns a response body as text.
fn text(server: &Server, path: &str) -> String {
    let mut response = super::agent().get(server.url(path)).call().unwrap();
    response.body_mut().read_to_string().unwrap()
}

fn what_is_too_much_is_refused(place: &Place) {
    let server = place.serve(&[]);
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let body = raw_envelope("1", &format!("{{\"deep\":{deep}}}"), "x");
    server.post_with(INGEST, body.as_bytes(), &JSON).refused(422, "validation_error");
    let batch = format!("[{deep}]");
    server.post_with(BATCH, batch.as_bytes(), &JSON).is(202);
    let unclosed = "[".repeat(500_000);
    server.post_with(BATCH, unclosed.as_bytes(), &JSON).refused(400, "bad_request");

    let long = raw_envelope("1", "{}", &"x".repeat(10 << 20));
    let answer = refused_early(&server, INGEST, &long);
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let many = json!(vec![json!({}); 1_001]);
    server.post(BATCH, &many).refused(413, "too_large");
    let mut huge = envelope("1");
    huge["payload"]["attachments"] =
        json!([{ "media_type": "a/b", "storage_ref": "x", "size_bytes": 1e300 }]);
    server.ingest(&huge).refused(422, "validation_error");
    huge["payload"]["attachments"][0]["size_bytes"] = json!(-1);
    server.ingest(&huge).refused(422, "validation_error");

    for bytes in [&b"\xff\xfe"[..], b"", b"null", b"\"x\"", b"{", b"{}{}", b"\xef\xbb\xbf{}"] {
        server.post_with(INGEST, bytes, &JSON).refused(422, "validation_error");
    }
    for kind in ["text/plain", "application/json; charset=latin1", "multipart/form-data", "x"] {
        let headers = [("content-type", kind)];
        let refused = server.post_with(INGEST, b"{}", &headers);
        refused.refused(415, "unsupported_media_type");
    }
    let zipped = [("content-type", "application/json"), ("content-encoding", "gzip")];
    server.post_with(INGEST, b"{}", &zipped).refused(415, "unsupported_media_type");

    let endless = endless_chunks(&server);
    assert!(endless.starts_with("HTTP/1.1 413 "), "{endless}");
    let long = format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(100_000));
    for (request, status) in [
        ("GET /health HTTP/1.1\r\n\r\n", 400),
        ("GET /health HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
        ("nonsense\r\n\r\n", 400),
        (long.as_str(), 431),
    ] {
        let answer = raw_request(&server, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    assert!(raw_request(&server, "GET /health HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 200 "));
    assert_eq!(server.inbox().len(), 0);
    server.stop();
}

fn connect(server: &Server) -> TcpStream {
    let socket = TcpStream::connect(server.at).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket.set_write_timeout(Some(LIMIT)).unwrap();
    socket
}

fn raw_request(server: &Server, request: &str) -> String {
    let mut socket = connect(server);
    // The server may respond and close the connection before it has read everything.
    let _ = socket.write_all(request.as_bytes());
    answer(socket)
}

fn answer(mut socket: TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
        match socket.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Sends only the head; the server has to respond without the body.
fn refused_early(server: &Server, path: &str, body: &str) -> String {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    raw_request(server, &head)
}

/// Sends chunks until the server responds.
fn endless_chunks(server: &Server) -> String {
    let mut socket = connect(server);
    let head = format!(
        "POST {INGEST} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         transfer-encoding: chunked\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).unwrap();
    let chunk = format!("4000\r\n{}\r\n", " ".repeat(0x4000));
    while socket.write_all(chunk.as_bytes()).is_ok() {
        let mut byte = [0];
        socket.set_nonblocking(true).unwrap();
        let answered = socket.peek(&mut byte).is_ok();
        socket.set_nonblocking(false).unwrap();
        if answered {
            break;
        }
    }
    answer(socket)
}

/// A constraint was added to the table. Other events of the same batch, and events of other
/// connections in the same commit group, are stored.
fn a_row_that_the_store_refuses_fails_alone(place: &Place) {
    let server = place.serve(&[]);
    place.execute(match place.url.starts_with("sqlite:") {
        true => {
            "CREATE TRIGGER poison BEFORE INSERT ON message_inbox
             WHEN NEW.envelope LIKE '%poison%' BEGIN SELECT RAISE(ABORT, 'poison'); END"
        }
        false => "ALTER TABLE message_inbox ADD CHECK (envelope NOT LIKE '%poison%')",
    });
    let mut batch = super::envelopes(20);
    batch[7] = envelope("poison");
    let others: Vec<_> = (0..20).map(|n| envelope(&format!("other-{n}"))).collect();
    let (told, singles) = std::thread::scope(|scope| {
        let batch = scope.spawn(|| server.batch(&batch).is(202));
        let singles: Vec<_> = others
            .iter()
            .map(|one| {
                let server = &server;
                scope.spawn(move || server.ingest(one).status)
            })
            .collect();
        let singles: Vec<u16> = singles.into_iter().map(|it| it.join().unwrap()).collect();
        (batch.join().unwrap(), singles)
    });
    assert_eq!(singles, [202; 20]);
    assert_eq!((&told["accepted"], &told["rejected"]), (&json!(19), &json!(1)), "{told}");
    assert_eq!(told["results"][7]["error"], "internal_error");
    server.ingest(&envelope("poison")).refused(500, "internal_error");
    assert_eq!(server.inbox().len(), 39);
}

/// Events of a batch with such a row are stored one by one. If the hold is replaced meanwhile, the
/// response reports the earlier ones as stored.
fn a_batch_that_is_fenced_in_the_middle_tells_what_was_stored(place: &Place) {
    let server = place.serve(&[]);
    place.execute(match place.url.starts_with("sqlite:") {
        true => {
            "CREATE TRIGGER poison BEFORE INSERT ON message_inbox
             WHEN NEW.envelope LIKE '%poison%' BEGIN SELECT RAISE(ABORT, 'poison'); END;
             CREATE TRIGGER takeover AFTER INSERT ON message_inbox
             WHEN NEW.envelope LIKE '%takeover%'
             BEGIN UPDATE ingest_fence SET epoch = 9, instance = 'b'; END"
        }
        false => {
            "ALTER TABLE message_inbox ADD CHECK (envelope NOT LIKE '%poison%');
             CREATE FUNCTION takeover() RETURNS trigger LANGUAGE plpgsql
             SET search_path FROM CURRENT AS 'BEGIN
                UPDATE ingest_fence SET epoch = 9, instance = ''b''; RETURN NULL; END';
             CREATE TRIGGER takeover AFTER INSERT ON message_inbox FOR EACH ROW
             WHEN (NEW.envelope LIKE '%takeover%') EXECUTE FUNCTION takeover()"
        }
    });
    let under = |names: &[&str]| {
        let batch = json!(names.iter().map(|name| envelope(name)).collect::<Vec<_>>());
        let hold = [("tenure-duty", "g/d"), ("tenure-epoch", "1"), ("tenure-instance", "a")];
        let headers = [&JSON[..], &hold].concat();
        server.post_with(BATCH, batch.to_string().as_bytes(), &headers)
    };
    let told = under(&["1", "takeover", "poison", "2"]).is(202);
    assert_eq!((&told["accepted"], &told["rejected"]), (&json!(2), &json!(2)), "{told}");
    for index in [2, 3] {
        let item = &told["results"][index];
        assert_eq!((&item["index"], &item["error"]), (&json!(index), &json!("fenced")), "{told}");
        assert_eq!((&item["epoch"], &item["newest_epoch"]), (&json!(1), &json!(9)), "{told}");
    }
    assert_eq!(server.inbox().len(), 2);
    // If nothing was stored, the whole batch is refused.
    under(&["3", "poison"]).refused(409, "fenced");
    assert_eq!(server.inbox().len(), 2);
}
