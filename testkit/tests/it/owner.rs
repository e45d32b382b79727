//! A server must not outlive its owner, however the owner ends.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use testkit::wait_until;

const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn killed_by_sigkill() {
    server_goes_after(|owner| owner.kill().unwrap());
}

#[test]
fn interrupted_by_ctrl_c() {
    server_goes_after(|owner| {
        let kill = Command::new("sh")
            .args(["-c", &format!("kill -INT {}", owner.id())])
            .status();
        assert!(kill.unwrap().success());
    });
}

fn server_goes_after(end: impl Fn(&mut Child)) {
    let temporary = tempfile::tempdir().unwrap();
    let mut owner = Command::new(env!("CARGO_BIN_EXE_hold-redis"))
        .env("TMPDIR", temporary.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(owner.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let port: u16 = line.trim().parse().unwrap();
    let accepts = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
    assert!(accepts());

    end(&mut owner);
    owner.wait().unwrap();

    wait_until("the server to be gone", LIMIT, || !accepts()).unwrap();
    let is_empty = || fs::read_dir(temporary.path()).unwrap().next().is_none();
    wait_until("the folder to be gone", LIMIT, is_empty).unwrap();
}
