//! Overload: memory, slow clients, full disks.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{BATCH, INGEST, Place, Server, agent, envelope};
use crate::running::LIMIT;
use crate::tenure::Tenure;

/// Returns the peak memory of a server so far, in KiB.
pub(super) fn peak_memory(server: &Server) -> u64 {
    let pid = server.running.pid().as_raw_pid();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Clients send large bodies over many connections, stop in the middle of a body, or never read.
/// The server rejects excess requests, its memory stays bounded, and it keeps responding.
#[test]
fn memory_is_bounded_whatever_comes() {
    let place = Place::sqlite();
    let server = place.serve(&["--client-timeout", "2s"]);
    let text = "y".repeat(512 << 10);
    let stuck: Vec<TcpStream> = (0..100).map(|n| stuck_client(&server, n)).collect();
    let (taken, turned_away) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for client in 0..48 {
            let (server, text) = (&server, text.as_str());
            let (taken, turned_away) = (&taken, &turned_away);
            scope.spawn(move || {
                let agent = agent();
                for round in 0..3 {
                    let body = large_batch(client * 100 + round, text);
                    let kind = [("content-type", "application/json")];
                    // A rejected client may find the connection closed while it sends.
                    let answer = server.try_post(&agent, BATCH, body.as_bytes(), &kind);
                    match answer.map(|answer| answer.status) {
                        Ok(202) => taken.fetch_add(1, Ordering::Relaxed),
                        Ok(429 | 503) | Err(_) => turned_away.fetch_add(1, Ordering::Relaxed),
                        Ok(other) => panic!("{other}"),
                    };
                }
            });
        }
    });
    let peak = peak_memory(&server);
    assert!(peak < 150 << 10, "{peak} KiB");
    let (taken, turned_away) = (taken.into_inner(), turned_away.into_inner());
    assert!(taken > 0 && turned_away > 0, "{taken} taken, {turned_away} turned away");
    // Afterwards, requests are accepted again.
    testkit::wait_until("there is room again", LIMIT, || {
        server.ingest(&envelope("after")).status == 202
    })
    .unwrap();
    assert_eq!(server.get("/ready").status, 200);
    drop(stuck);
    server.stop();
}

/// Returns a batch of 4 MiB.
fn large_batch(seed: usize, text: &str) -> String {
    let large = |n: usize| {
        let mut given = envelope(&format!("large-{seed}-{n}"));
        given["payload"]["normalized_text"] = "LARGE".into();
        given.to_string().replace("LARGE", text)
    };
    format!("[{}]", (0..8).map(large).collect::<Vec<_>>().join(","))
}

const OPENAPI: &str = "GET /api/openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// Sends half a request, or many requests without reading the responses.
fn stuck_client(server: &Server, n: usize) -> TcpStream {
    let mut socket = TcpStream::connect(server.at).unwrap();
    let head = format!(
        "POST {INGEST} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: 100000\r\n\r\n{{\"half\":"
    );
    let pages = OPENAPI.repeat(200);
    let request = if n.is_multiple_of(2) { head } else { pages };
    // The server may reject the connection.
    let _ = socket.write_all(request.as_bytes());
    socket
}

/// Clients that stop in the middle of a head or body are disconnected, and so is one that does not
/// read its responses.
#[test]
fn a_slow_client_is_cut_off() {
    let place = Place::sqlite();
    let server = place.serve(&["--client-timeout", "1s"]);
    let half_a_body = stuck_client(&server, 0);
    let mut half_a_head = TcpStream::connect(server.at).unwrap();
    half_a_head.write_all(b"GET /health HTTP/1.1\r\nho").unwrap();
    for (mut socket, told) in [(half_a_body, "HTTP/1.1 408 "), (half_a_head, "")] {
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        let mut answer = String::new();
        let ended = socket.read_to_string(&mut answer);
        assert!(ended.is_ok(), "{ended:?}: {answer}");
        assert!(answer.starts_with(told), "{answer}");
    }
    let mut greedy = stuck_client(&server, 1);
    greedy.set_write_timeout(Some(LIMIT)).unwrap();
    let pages = OPENAPI.repeat(100);
    let broken = loop {
        if let Err(error) = greedy.write_all(pages.as_bytes()) {
            break error.kind();
        }
    };
    assert!(matches!(broken, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{broken}");
    server.ingest(&envelope("1")).is(202);
}

/// Checks log, readiness and responses of a full store, and the recovery.
fn a_full_store_is_told(place: &Place, fill: impl FnOnce(), free: impl FnOnce()) {
    let server = place.serve(&[]);
    server.ingest(&envelope("before")).is(202);
    fill();
    let mut large = envelope("large");
    large["payload"]["normalized_text"] = "x".repeat(256 << 10).into();
    let full = server.ingest(&large).refused(503, "store_full");
    assert_eq!(full["code"], "ST008", "{full}");
    let ready = server.get("/ready").is(503);
    assert_eq!((&ready["status"], &ready["code"]), (&"store_full".into(), &"ST008".into()));
    assert_eq!(server.get("/health").status, 200);
    server.ingest(&large).refused(503, "store_full");
    place.tenure.said(&server.running, "submissions are rejected: ST008");
    let said = place.said(&server);
    assert_eq!(said.matches("submissions are rejected: ST008").count(), 1, "{said}");
    free();
    testkit::wait_until("it is ready", LIMIT, || server.get("/ready").status == 200).unwrap();
    server.ingest(&large).is(202);
    assert_eq!(server.inbox().len(), 2);
    server.stop();
}

/// A mounted file system; unmounted on drop.
struct Mount(std::path::PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_told() {
    let tenure = Tenure::new();
    let folder = tenure.path("disk");
    std::fs::create_dir(&folder).unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=2m", "tmpfs"];
    let mounted = std::process::Command::new("mount").args(mount).arg(&folder).status();
    let mounted = mounted.is_ok_and(|status| status.success());
    assert!(mounted || std::env::var_os("CI").is_none(), "cannot mount a tmpfs");
    if !mounted {
        return;
    }
    let _mount = Mount(folder.clone());
    let url = tenure.sqlite("disk/tenure.db");
    let place = Place { tenure, url };
    let filler = folder.join("filler");
    let fill = || {
        let mut file = std::fs::File::create(&filler).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
    };
    a_full_store_is_told(&place, fill, || std::fs::remove_file(&filler).unwrap());
}

/// A trigger raises the error of PostgreSQL for a full disk.
#[test]
fn a_full_disk_of_postgres_is_told() {
    let Some(place) = Place::postgres() else { return };
    let fill = || {
        place.execute(
            "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$;
             CREATE TRIGGER no_room BEFORE INSERT ON ingest_dedupe
                EXECUTE FUNCTION no_room()",
        );
    };
    a_full_store_is_told(&place, fill, || place.execute("DROP FUNCTION no_room CASCADE"));
}
