//! Fake switchboard with scripted replies, which records the requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use testkit::wait_until;

use crate::running::LIMIT;

/// Scripted reply.
#[derive(Clone, Debug)]
pub enum Reply {
    Answer(u16, String),
    /// The connection is closed.
    Nothing,
    /// The connection stays open.
    Silence,
}

impl Reply {
    pub fn accepted() -> Self {
        let now = jiff::Timestamp::now().to_string();
        Self::Answer(200, json!({ "status": "accepted", "server_time": now }).to_string())
    }
}

/// Recorded request.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Request line and headers, in lower case.
    pub head: String,
    pub text: String,
}

impl Sent {
    pub fn body(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }

    pub fn instance(&self) -> String {
        self.body()["connector"]["instance_id"].as_str().unwrap().to_owned()
    }
}

#[derive(Debug)]
pub struct Listener {
    pub at: SocketAddr,
    sent: Arc<Mutex<Vec<Sent>>>,
}

impl Listener {
    /// Sends the replies in this order, then repeats the last one.
    pub fn start(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&sent);
        std::thread::spawn(move || {
            let mut open = Vec::new();
            for (n, stream) in listener.incoming().enumerate() {
                let mut stream = stream.unwrap();
                seen.lock().unwrap().push(receive(&stream));
                match &replies[n.min(replies.len() - 1)] {
                    Reply::Answer(status, body) => {
                        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}", body.len());
                        let place = "location: http://127.0.0.1:1/";
                        // The client may have closed the connection.
                        let _ = write!(stream, "{head}\r\n{place}\r\n\r\n{body}");
                    }
                    Reply::Nothing => drop(stream),
                    Reply::Silence => open.push(stream),
                }
            }
        });
        Self { at, sent }
    }

    pub fn accepting() -> Self {
        Self::start(vec![Reply::accepted()])
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.at)
    }

    pub fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }

    /// Waits for `count` requests; returns the last of them.
    #[track_caller]
    pub fn wait(&self, count: usize) -> Sent {
        let seen = wait_until("heartbeats", LIMIT, || self.sent().len() >= count);
        assert!(seen.is_ok(), "only {:?}", self.sent());
        self.sent()[count - 1].clone()
    }
}

fn receive(stream: &TcpStream) -> Sent {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "it broke off after {head:?}");
    }
    let length = head.to_lowercase();
    let length = length.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    Sent { head: head.to_lowercase(), text: String::from_utf8(body).unwrap() }
}
