//! The local API of the program under a hold, on every store with a URL.

mod faults;
mod port;
mod requests;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde_json::Value;
use testkit::{TEST_ETCD, TEST_POSTGRES, TEST_REDIS, service};

use crate::running::{LIMIT, Running, STAY};
use crate::stores::name;
use crate::tenure::Tenure;

/// Returns the URL of an empty store of each kind, in this order.
pub fn stores(tenure: &Tenure) -> Vec<String> {
    let mut stores = vec![format!("file:{}", tenure.path("cursor.json").display())];
    stores.extend(shared_stores(tenure));
    stores
}

/// Returns those of [`stores`] that several processes can use.
pub fn shared_stores(tenure: &Tenure) -> Vec<String> {
    let mut stores = vec![tenure.sqlite("tenure.db")];
    let servers =
        [(TEST_POSTGRES, "schema", ""), (TEST_REDIS, "prefix", ":"), (TEST_ETCD, "prefix", "/")];
    for (variable, parameter, end) in servers {
        if let Some(server) = service(variable) {
            stores.push(format!("{server}?{parameter}={}{end}", name()));
        }
    }
    stores
}

/// Where a program finds the API.
#[derive(Clone, Debug)]
pub enum Place {
    Socket(PathBuf),
    Port { address: String, token: String },
}

/// A response.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    head: String,
    pub body: Vec<u8>,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    /// Version of the checkpoint that it is about.
    #[track_caller]
    pub fn version(&self) -> u64 {
        self.header("etag").unwrap().trim_matches('"').parse().unwrap()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Status and result, as in `(200, "stored")`.
    #[track_caller]
    pub fn result(&self) -> (u16, String) {
        (self.status, self.json()["result"].as_str().unwrap().to_owned())
    }
}

/// A connection that is kept open.
pub struct Connection(Box<dyn Stream>, Place);

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

impl Place {
    pub fn connect(&self) -> std::io::Result<Connection> {
        let stream: Box<dyn Stream> = match self {
            Self::Socket(path) => Box::new(UnixStream::connect(path)?),
            Self::Port { address, .. } => {
                let stream = TcpStream::connect(address)?;
                stream.set_read_timeout(Some(LIMIT))?;
                Box::new(stream)
            }
        };
        Ok(Connection(stream, self.clone()))
    }

    /// Sends one request on a connection of its own.
    #[track_caller]
    pub fn send(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Response {
        self.connect().unwrap().send(method, path, headers, body).unwrap()
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[], b"")
    }

    #[track_caller]
    pub fn post(&self, path: &str) -> Response {
        self.send("POST", path, &[], b"")
    }

    #[track_caller]
    pub fn put(&self, headers: &[&str], body: &str) -> Response {
        self.send("PUT", "/checkpoint", headers, body.as_bytes())
    }
}

impl Connection {
    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[&str],
        body: &[u8],
    ) -> std::io::Result<Response> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nContent-Length: {}\r\n", body.len());
        if let Place::Port { address, token } = &self.1 {
            head += &format!("Host: {address}\r\nAuthorization: Bearer {token}\r\n");
        } else {
            head += "Host: tenure\r\n";
        }
        headers.iter().for_each(|line| head += &format!("{line}\r\n"));
        self.0.write_all(&[head.as_bytes(), b"\r\n", body].concat())?;
        let (mut read, mut byte) = (Vec::new(), [0]);
        while !read.ends_with(b"\r\n\r\n") {
            self.0.read_exact(&mut byte)?;
            read.push(byte[0]);
        }
        let head = String::from_utf8(read).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut response = Response { status, head, body: Vec::new() };
        let length = response.header("content-length").map(|length| length.parse().unwrap());
        response.body = vec![0; length.unwrap_or(0)];
        self.0.read_exact(&mut response.body)?;
        Ok(response)
    }
}

/// Arguments of `tenure run` for the duty `g/d` on a store.
pub fn run_on<'a>(store: &'a str, options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let before = ["run", "--store", store, "--duty", "g/d", "--ttl", "6s", "--log-level", "debug"];
    [&before[..], options, &["--", "sh", "-c", script]].concat()
}

/// Script that writes the place of the API to the file `NAME`, and stays.
pub fn stay(name: &str) -> String {
    format!("echo $TENURE_API > {name}.new; mv {name}.new {name}; {STAY}")
}

/// Starts a command that stays; returns it and its API.
#[track_caller]
pub fn held(tenure: &Tenure, name: &str, store: &str, options: &[&str]) -> (Running, Place) {
    let script = stay(&format!("{name}.api"));
    let running = tenure.start(name, &run_on(store, options, &script));
    let place = socket(tenure, name);
    (running, place)
}

/// Waits for the socket that a command was given.
#[track_caller]
pub fn socket(tenure: &Tenure, name: &str) -> Place {
    Place::Socket(tenure.lines(&format!("{name}.api"), 1).remove(0).into())
}
