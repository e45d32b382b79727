//! One trial: two contenders, one fault, and the lines that their commands wrote.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use testkit::{Proxy, wait_until};

use super::report::{TrialOutcome, judge};
use super::system::{FAULT_DURATION, LockFault, LockServer, LockSystem, OUTAGE_DURATION};
use crate::run::output;

/// Time for which A holds the lock and B waits before the fault.
const STEADY: Duration = Duration::from_secs(3);
/// Delay by which each repetition's fault is later in the cycle of renewals.
const PHASE: Duration = Duration::from_millis(410);
/// Delay after which a wrapper that ended by itself is started again, as by a service manager.
const RESTART_DELAY: Duration = Duration::from_secs(1);
const START_LIMIT: Duration = Duration::from_secs(30);

/// Installed programs.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) tenure: PathBuf,
    pub(crate) python: PathBuf,
    pub(crate) recipes: PathBuf,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Trial {
    pub(crate) system: &'static LockSystem,
    pub(crate) fault: LockFault,
    pub(crate) repetition: u32,
}

impl Trial {
    pub(crate) fn run(&self, programs: &Programs) -> Result<TrialOutcome> {
        let folder = TempDir::new()?;
        let server = match self.system.store.has_server() {
            true => Some(LockServer::start(self.system.store)?),
            false => None,
        };
        let proxy = match (&server, self.fault) {
            (Some(server), LockFault::Cut) => Some(Proxy::start(server.port())?),
            _ => None,
        };
        let file = format!("sqlite:{}", folder.path().join("tenure.db").display());
        let url = server.as_ref().map_or(file, LockServer::url);
        let through_proxy = match (&server, &proxy) {
            (Some(server), Some(proxy)) => {
                url.replace(&format!(":{}", server.port()), &format!(":{}", proxy.port()))
            }
            _ => url.clone(),
        };
        let lines = folder.path().join("lines");
        let contender = |holder, url: &str| {
            let mut words = self.system.wrapper(programs, url, folder.path());
            words.push(programs.python.display().to_string());
            words.push(programs.recipes.join("child.py").display().to_string());
            Contender::start(holder, words, folder.path())
        };
        let a = contender("A", &through_proxy)?;
        wait_until("A's command", START_LIMIT, || !read(&lines).is_empty())?;
        let b = contender("B", &url)?;
        thread::sleep(STEADY + PHASE * self.repetition);

        let before = read(&lines);
        let (_, first) = before.first().context("A's command wrote nothing")?.clone();
        ensure!(before.iter().all(|(_, name)| *name == first), "two commands ran before the fault");
        let child = first.trim_start_matches("A.").to_owned();
        let identity = start_time(&child);
        let wrapper = a.pid.load(SeqCst).to_string();
        let wrapper_identity = start_time(&wrapper);
        let began = now();
        self.fail(&a, &child, server.as_ref(), proxy.as_ref())?;
        let passed = Duration::from_nanos(now().saturating_sub(began));
        thread::sleep(self.fault.observed().saturating_sub(passed));

        let ended = now();
        let is_alive = identity.is_some() && start_time(&child) == identity;
        let has_wrapper = start_time(&wrapper) == wrapper_identity;
        drop((a, b));
        judge(&read(&lines), began, ended, &first, is_alive, has_wrapper)
    }

    fn fail(
        &self,
        a: &Contender,
        child: &str,
        server: Option<&LockServer>,
        proxy: Option<&Proxy>,
    ) -> Result<()> {
        let wrapper = a.pid.load(SeqCst).to_string();
        match (self.fault, server, proxy) {
            (LockFault::Term | LockFault::Kill, ..) => {
                a.finished.store(true, SeqCst);
                let name = if self.fault == LockFault::Term { "TERM" } else { "KILL" };
                signal(name, &[&wrapper])?;
            }
            (LockFault::Stop | LockFault::Freeze, ..) => {
                // The child continues first: the worst order.
                let with_child = [child, &wrapper];
                let pids =
                    if self.fault == LockFault::Stop { &with_child[1..] } else { &with_child };
                signal("STOP", pids)?;
                thread::sleep(FAULT_DURATION);
                // Some of the processes may have been killed meanwhile.
                let _ = signal("CONT", pids);
            }
            (LockFault::Cut, _, Some(proxy)) => {
                proxy.stall();
                thread::sleep(FAULT_DURATION);
                proxy.restore()?;
            }
            (LockFault::Restart, Some(server), _) => {
                server.kill()?;
                server.start_again()?;
            }
            (LockFault::Outage, Some(server), _) => {
                server.kill()?;
                thread::sleep(OUTAGE_DURATION);
                server.start_again()?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// A wrapper that is started again when it ends by itself.
struct Contender {
    pid: Arc<AtomicU32>,
    /// Whether not to restart it: the fault ends the wrapper, or the trial is over.
    finished: Arc<AtomicBool>,
    mark: String,
}

impl Contender {
    fn start(holder: &str, words: Vec<String>, folder: &Path) -> Result<Self> {
        let contender = Self {
            pid: Arc::default(),
            finished: Arc::default(),
            mark: format!("COMPARE_TRIAL={}", folder.display()),
        };
        let log = fs::File::create(folder.join(format!("{holder}.log")))?;
        let lines = folder.join("lines");
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(folder).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(log);
        command.env("COMPARE_TRIAL", folder).env("COMPARE_HOLDER", holder);
        command.env("COMPARE_LINES", lines).env("ETCDCTL_API", "3");
        let pid = Arc::clone(&contender.pid);
        let finished = Arc::clone(&contender.finished);
        thread::spawn(move || {
            while !finished.load(SeqCst) {
                let Ok(mut process) = command.spawn() else { return };
                pid.store(process.id(), SeqCst);
                let _ = process.wait();
                thread::sleep(RESTART_DELAY);
            }
        });
        Ok(contender)
    }
}

impl Drop for Contender {
    /// Ends every process of the trial.
    fn drop(&mut self) {
        self.finished.store(true, SeqCst);
        let marked = |pid: &String| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|text| text == self.mark.as_bytes())
        };
        for _ in 0..20 {
            let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            let pids: Vec<String> = names.filter(marked).collect();
            if pids.is_empty() {
                return;
            }
            let _ = signal("KILL", &pids.iter().map(String::as_str).collect::<Vec<_>>());
            thread::sleep(Duration::from_millis(100));
        }
    }
}

fn signal(name: &str, pids: &[&str]) -> Result<()> {
    output(Command::new("kill").arg(format!("-{name}")).args(pids)).map(drop)
}

/// Returns the start time of a process in clock ticks; `None` if it has ended.
fn start_time(pid: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    (state != "Z" && state != "X").then(|| fields.nth(18).map(str::to_owned))?
}

/// Returns Unix time in nanoseconds, as the command writes it.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Reads whole lines, as time and writer.
fn read(path: &Path) -> Vec<(u64, String)> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    let parsed = whole.filter_map(|line| {
        let (time, name) = line.split_once(' ')?;
        Some((time.parse().ok()?, name.to_owned()))
    });
    parsed.collect()
}
