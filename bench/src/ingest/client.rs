//! Load generator with little overhead: it shares two cores with the measured server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::events::Bodies;

/// Length of one measurement, after a warm-up of a fifth of it.
const MEASURED: Duration = Duration::from_secs(5);

/// Kind of requests of a measurement.
#[derive(Clone, Copy)]
pub struct RequestShape {
    pub path: &'static str,
    pub status: &'static str,
    pub connections: usize,
    /// Events in a request.
    pub size: usize,
}

/// One connection of a client, kept alive.
pub struct LoadConnection {
    socket: TcpStream,
    answer: Vec<u8>,
}

impl LoadConnection {
    pub async fn open(at: SocketAddr) -> Result<Self> {
        let socket = TcpStream::connect(at).await?;
        socket.set_nodelay(true)?;
        Ok(Self { socket, answer: vec![0; 64 << 10] })
    }

    /// Posts a body and reads the whole response.
    pub async fn post(&mut self, path: &str, body: &[u8], status: &str) -> Result<()> {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        let mut request = head.into_bytes();
        request.extend_from_slice(body);
        self.exchange(&request, status).await?;
        Ok(())
    }

    /// Sends one request and reads the whole response; returns the length of its body.
    pub async fn exchange(&mut self, request: &[u8], status: &str) -> Result<usize> {
        self.socket.write_all(request).await?;
        let mut filled = 0;
        let (start, length) = loop {
            ensure!(filled < self.answer.len(), "the head of the response is too long");
            let read = self.socket.read(&mut self.answer[filled..]).await?;
            ensure!(read > 0, "the connection closed");
            filled += read;
            if let Some(found) = head_of(&self.answer[..filled])? {
                break found;
            }
        };
        ensure!(
            self.answer[9..].starts_with(status.as_bytes()),
            "{}",
            String::from_utf8_lossy(&self.answer[..filled])
        );
        while filled < start + length {
            if filled == self.answer.len() {
                self.answer.resize(2 * filled, 0);
            }
            let read = self.socket.read(&mut self.answer[filled..]).await?;
            ensure!(read > 0, "the connection closed");
            filled += read;
        }
        Ok(length)
    }
}

/// Returns offset and length of the body once the head is complete.
fn head_of(answer: &[u8]) -> Result<Option<(usize, usize)>> {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&answer[..end])?;
    for line in head.split("\r\n").skip(1) {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            return Ok(Some((end + 4, value.trim().parse()?)));
        }
    }
    bail!("a response without Content-Length: {head}")
}

/// Returns the acknowledged events per second, with clients that wait for each response.
pub fn saturate(at: SocketAddr, shape: RequestShape, bodies: &Arc<Bodies>) -> Result<f64> {
    let counted = Arc::new(AtomicU64::new(0));
    let over = Arc::new(AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..shape.connections {
            let (counted, over, bodies) = (counted.clone(), over.clone(), bodies.clone());
            clients.spawn(async move {
                let mut connection = LoadConnection::open(at).await?;
                while !over.load(Ordering::Relaxed) {
                    connection.post(shape.path, &bodies.next(shape.size), shape.status).await?;
                    counted.fetch_add(shape.size as u64, Ordering::Relaxed);
                }
                anyhow::Ok(())
            });
        }
        tokio::time::sleep(MEASURED / 5).await;
        let (before, began) = (counted.load(Ordering::Relaxed), Instant::now());
        tokio::time::sleep(MEASURED).await;
        let rate =
            (counted.load(Ordering::Relaxed) - before) as f64 / began.elapsed().as_secs_f64();
        over.store(true, Ordering::Relaxed);
        while let Some(ended) = clients.join_next().await {
            ended.context("a client panicked")??;
        }
        Ok(rate)
    })
}

/// Returns the 50th and 99th percentile of acknowledgements at a steady rate of single events. Each
/// is timed from the moment at which it was due, so a stalled server is charged for the queue.
pub fn paced(
    at: SocketAddr,
    shape: RequestShape,
    bodies: &Arc<Bodies>,
    rate: u32,
) -> Result<[Duration; 2]> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let began = Instant::now() + Duration::from_millis(100);
        let mut clients = tokio::task::JoinSet::new();
        let connections = u32::try_from(shape.connections)?;
        for n in 0..connections {
            let bodies = bodies.clone();
            clients.spawn(async move {
                let mut connection = LoadConnection::open(at).await?;
                let mut took = Vec::new();
                let count = rate * u32::try_from(MEASURED.as_secs())?;
                for event in (n..count).step_by(connections as usize) {
                    let due = began + Duration::from_secs(1) / rate * event;
                    tokio::time::sleep_until(due.into()).await;
                    connection.post(shape.path, &bodies.next(1), shape.status).await?;
                    took.push(due.elapsed());
                }
                anyhow::Ok(took)
            });
        }
        let mut all = Vec::new();
        while let Some(ended) = clients.join_next().await {
            all.extend(ended.context("a client panicked")??);
        }
        all.sort_unstable();
        Ok([all[all.len() / 2], all[all.len() * 99 / 100]])
    })
}
