use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use testkit::{Proxy, wait_until};

const LIMIT: Duration = Duration::from_secs(10);

/// Starts a server that echoes its input.
fn echo_server() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut byte = [0];
                while stream.read_exact(&mut byte).is_ok() {
                    stream.write_all(&byte)?;
                }
                io::Result::Ok(())
            });
        }
    });
    port
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

fn echoes(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    stream.write_all(b"x").is_ok() && stream.read_exact(&mut byte).is_ok() && byte == *b"x"
}

#[test]
fn swallowed_replies_never_arrive() {
    let proxy = Proxy::start(echo_server()).unwrap();
    let mut stream = connect(&proxy);
    assert!(echoes(&mut stream));

    proxy.swallow_replies();
    stream.write_all(b"x").unwrap();
    wait_until("the reply to be swallowed", LIMIT, || proxy.swallowed() == 1).unwrap();

    proxy.restore().unwrap();
    assert!(!echoes(&mut stream), "a connection with a hole in it went on");
    assert!(echoes(&mut connect(&proxy)));
}

#[test]
fn a_cut_refuses_until_restored() {
    let proxy = Proxy::start(echo_server()).unwrap();
    let mut stream = connect(&proxy);
    assert!(echoes(&mut stream));

    proxy.cut();
    assert!(!echoes(&mut stream));
    let refused = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);

    proxy.restore().unwrap();
    assert!(echoes(&mut connect(&proxy)));
}

#[test]
fn dropping_the_proxy_ends_its_connections() {
    let proxy = Proxy::start(echo_server()).unwrap();
    let mut stream = connect(&proxy);
    assert!(echoes(&mut stream));
    drop(proxy);
    assert!(!echoes(&mut stream));
}
