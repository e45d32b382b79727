//! `cargo xtask bench api`: a commit through the local API of `tenure run`, beside the same commit
//! by the library. Both are measured alternately, on the same store.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tenure_core::Document;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::failover::{STORES, assigned, standby, url};
use crate::measure::{JudgedRow, conclude, median};

/// Commits of each kind per store, after some that are not measured.
const COMMITS: usize = 1_000;
const WARM_UP: usize = 50;

const HEADING: &str = "\
| store | library | local API | ratio | more | bar |
|---|---:|---:|---:|---:|---|";

struct ApiRow {
    store: &'static str,
    library: Duration,
    api: Duration,
}

impl ApiRow {
    fn ratio(&self) -> f64 {
        self.api.as_secs_f64() / self.library.as_secs_f64()
    }

    fn more(&self) -> Duration {
        self.api.saturating_sub(self.library)
    }

    /// On the SQL stores a commit waits for a disk; on the others a round trip is nearly all.
    fn is_sql(&self) -> bool {
        matches!(self.store, "sqlite" | "postgres")
    }
}

impl JudgedRow for ApiRow {
    fn is_met(&self) -> bool {
        if self.is_sql() { self.ratio() <= 1.3 } else { self.more() <= Duration::from_micros(200) }
    }
}

impl fmt::Display for ApiRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let bar = if self.is_sql() { "ratio 1.3" } else { "0.2 ms more" };
        let verdict = if self.is_met() { "met" } else { "**missed**" };
        let (store, library, api) = (self.store, ms(self.library), ms(self.api));
        let (ratio, more) = (self.ratio(), ms(self.more()));
        write!(f, "| {store} | {library:.3} ms | {api:.3} ms | {ratio:.2} ")?;
        write!(f, "| {more:.3} ms | {bar} {verdict} |")
    }
}

/// Measures the named stores, or all; prints the table, and fails if a bar is missed.
pub async fn run(is_wanted: impl Fn(&str) -> bool) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut rows = Vec::new();
    for store in STORES.into_iter().filter(|store| is_wanted(store)) {
        let row = measured(store, &url(store, &folder)?).await?;
        eprintln!("{row}");
        rows.push(row);
    }
    conclude(HEADING, &rows)
}

async fn measured(store: &'static str, url: &str) -> Result<ApiRow> {
    let mut member = standby(url, "library").await?;
    let guard = assigned(&mut member).await?;
    let (program, socket) = supervised(url).await?;
    let mut api = UnixStream::connect(socket)?;
    let (mut by_library, mut by_api) = (Vec::new(), Vec::new());
    for n in 0..WARM_UP + COMMITS {
        let text = format!("{{\"last_update_id\": {n}, \"last_updated_at\": \"2026-02-15\"}}");
        let begun = Instant::now();
        guard.commit(Document::new(text.clone())?).await?;
        let library = begun.elapsed();
        let begun = Instant::now();
        put(&mut api, &text)?;
        if n >= WARM_UP {
            by_library.push(library);
            by_api.push(begun.elapsed());
        }
    }
    drop((guard, program));
    member.leave().await?;
    Ok(ApiRow { store, library: median(by_library), api: median(by_api) })
}

/// Starts `tenure run`, whose command prints the socket of the API and waits.
async fn supervised(url: &str) -> Result<(Child, String)> {
    let binary = std::env::current_exe()?.with_file_name("tenure");
    ensure!(Path::new(&binary).exists(), "{} is not built", binary.display());
    let script = "echo $TENURE_API; read line";
    let mut command = Command::new(binary);
    command.args(["run", "--store", url, "--duty", "api/one", "--", "sh", "-c", script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.kill_on_drop(true).spawn()?;
    let stdout = child.stdout.take().context("no output")?;
    let line = BufReader::new(stdout).lines().next_line().await?;
    Ok((child, line.context("the command has not started")?))
}

/// Sends one commit on an open connection and waits for the response, as a program does that has no
/// event loop: with one, each response would also pass from the loop's thread to this one.
fn put(api: &mut UnixStream, document: &str) -> Result<()> {
    let length = document.len();
    let request = format!(
        "PUT /checkpoint HTTP/1.1\r\nHost: tenure\r\nContent-Length: {length}\r\n\r\n{document}"
    );
    api.write_all(request.as_bytes())?;
    let (mut response, mut buffer) = (Vec::new(), [0; 1024]);
    // The body is a short line.
    while !response.ends_with(b"}\n") {
        let read = api.read(&mut buffer)?;
        ensure!(read > 0, "the connection was closed");
        response.extend_from_slice(&buffer[..read]);
    }
    let text = String::from_utf8_lossy(&response);
    ensure!(text.starts_with("HTTP/1.1 200 "), "not stored: {text}");
    Ok(())
}
