//! `cargo xtask bench failover`: time for which a duty has no holder.
//!
//! - *crash*: the holder, a separate process, is killed; time until the standby is assigned.
//! - *handover*: the holder is asked to leave; time until the standby is assigned.
//! - *settle*: ten instances start at once on 1,000 duties; time until each holds its hundred.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use tenure_core::{DutyId, GroupName, Instance, Ttl};
use tenure_duty::{Duties, Guard, Join, Membership, MembershipEvent, opener, process};
use tenure_store::{BootClock, IfAbsent, StoreUrl};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

pub const STORES: [&str; 4] = ["sqlite", "postgres", "redis", "etcd"];
const TTL: Duration = Duration::from_secs(3);
const CRASHES: usize = 100;
/// Holders that are killed at the same time, each in its own group.
const CONCURRENT_CRASHES: usize = 10;
const HANDOVERS: usize = 1_000;
const HANDOVER_GROUPS: usize = 4;
const INSTANCES: usize = 10;
const DUTIES: u32 = 1_000;
/// Limit that no assignment should reach.
const ASSIGN_TIMEOUT: Duration = Duration::from_secs(60);

const HEADING: &str = "\
| store | what | times | p50 | p99 | worst | bar |
|---|---|---:|---:|---:|---:|---:|";

/// Runs the named measurements, prints the table, and fails if a bar is missed.
pub async fn run(wanted: &[String]) -> Result<()> {
    let is_wanted = |word: &str| {
        let same_kind =
            |other: &&String| STORES.contains(&other.as_str()) == STORES.contains(&word);
        let mut named = wanted.iter().filter(same_kind).peekable();
        named.peek().is_none() || named.any(|other| other == word)
    };
    let folder = tempfile::tempdir()?;
    let mut lines = Vec::new();
    let mut missed = 0;
    for store in STORES.into_iter().filter(|store| is_wanted(store)) {
        let url = url(store, &folder)?;
        let handover_bar = if store == "sqlite" { 1_000 } else { 250 };
        for (what, bar, judged) in [
            ("handover", handover_bar, JudgedQuantile::P99),
            ("crash", 4_000, JudgedQuantile::Worst),
            ("settle", 5_000, JudgedQuantile::Worst),
        ] {
            if !is_wanted(what) {
                continue;
            }
            let times = match what {
                "handover" => handovers(&url).await?,
                "crash" => crashes(&url).await?,
                _ => settles(&url).await?,
            };
            let (line, met) = row(store, what, times, Duration::from_millis(bar), judged);
            eprintln!("{line}");
            lines.push(line);
            missed += usize::from(!met);
        }
    }
    println!("{HEADING}\n{}", lines.join("\n"));
    ensure!(missed == 0, "{missed} bars are missed");
    Ok(())
}

/// Quantile that is compared with the bar.
#[derive(Clone, Copy)]
enum JudgedQuantile {
    P99,
    Worst,
}

fn row(
    store: &str,
    what: &str,
    mut times: Vec<Duration>,
    bar: Duration,
    judged: JudgedQuantile,
) -> (String, bool) {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    let (p50, p99, worst) = (at(50), at(99), at(100));
    let (word, value) = match judged {
        JudgedQuantile::P99 => ("p99", p99),
        JudgedQuantile::Worst => ("worst", worst),
    };
    let met = value <= bar;
    let verdict = if met { "met" } else { "**missed**" };
    let ms = |time: Duration| time.as_millis();
    let line = format!(
        "| {store} | {what} | {} | {} ms | {} ms | {} ms | {word} {} ms {verdict} |",
        times.len(),
        ms(p50),
        ms(p99),
        ms(worst),
        ms(bar)
    );
    (line, met)
}

pub fn url(store: &str, folder: &TempDir) -> Result<String> {
    let own = format!("failover{}", std::process::id());
    let service = |name| testkit::service(name).with_context(|| format!("{name} is not set"));
    Ok(match store {
        "sqlite" => format!("sqlite:{}", folder.path().join("failover.db").display()),
        "postgres" => format!("{}?schema={own}", service(testkit::TEST_POSTGRES)?),
        "redis" => format!("{}?prefix={own}", service(testkit::TEST_REDIS)?),
        "etcd" => format!("{}?prefix={own}", service(testkit::TEST_ETCD)?),
        other => bail!("there is no store {other}"),
    })
}

/// Joins as a member with its own identity in this process.
async fn join(url: &str, group: &str, duties: Duties) -> Result<Membership> {
    let url = StoreUrl::parse(url)?;
    let open = opener(move || {
        let url = url.clone();
        async move { url.open(IfAbsent::Create, process::entropy()).await }
    });
    let instance = Instance::mint("bench", 1, process::entropy());
    let join = Join::new(open, Arc::new(BootClock), GroupName::new(group)?, Ttl::new(TTL)?, duties);
    Ok(join.instance(&instance).start().await?)
}

pub async fn standby(url: &str, group: &str) -> Result<Membership> {
    join(url, group, Duties::Standby(DutyId::new("one")?)).await
}

pub async fn assigned(member: &mut Membership) -> Result<Guard> {
    let guard = async {
        while let Some(event) = member.next().await {
            if let MembershipEvent::Assigned(guard) = event {
                return Ok(guard);
            }
        }
        bail!("the membership has ended")
    };
    tokio::time::timeout(ASSIGN_TIMEOUT, guard).await.context("no duty was assigned in time")?
}

/// Waits until the member stands by behind the holder.
async fn waiting(member: &mut Membership) -> Result<()> {
    let standby = async {
        while let Some(event) = member.next().await {
            if let MembershipEvent::Standby { .. } = event {
                return Ok(());
            }
        }
        bail!("the membership has ended")
    };
    tokio::time::timeout(ASSIGN_TIMEOUT, standby).await.context("the member does not stand by")?
}

/// Measures handovers in several groups concurrently, because joining takes longer than a handover.
async fn handovers(url: &str) -> Result<Vec<Duration>> {
    let mut groups = JoinSet::new();
    for n in 0..HANDOVER_GROUPS {
        let (url, group) = (url.to_owned(), format!("handover-{n}"));
        groups.spawn(async move { handovers_in(&url, &group).await });
    }
    let mut times = Vec::with_capacity(HANDOVERS);
    while let Some(some) = groups.join_next().await {
        times.extend(some??);
    }
    Ok(times)
}

/// Measures handovers: the holder leaves, the standby gets the duty, and a new standby joins.
async fn handovers_in(url: &str, group: &str) -> Result<Vec<Duration>> {
    let mut holder = standby(url, group).await?;
    let mut guard = assigned(&mut holder).await?;
    let mut times = Vec::new();
    while times.len() < HANDOVERS / HANDOVER_GROUPS {
        let mut next = standby(url, group).await?;
        waiting(&mut next).await?;
        let epoch = guard.epoch();
        let began = Instant::now();
        holder.leaver().leave();
        drop(guard);
        guard = assigned(&mut next).await?;
        times.push(began.elapsed());
        ensure!(guard.epoch() > epoch, "the epoch did not grow");
        if times.len().is_multiple_of(50) {
            eprintln!("{group}: {} handovers", times.len());
        }
        holder = next;
    }
    drop(guard);
    holder.leave().await?;
    Ok(times)
}

/// Holds the duty of a group until this process is killed.
pub async fn hold_until_killed(url: &str, group: &str) -> Result<()> {
    let mut member = standby(url, group).await?;
    let _guard = assigned(&mut member).await?;
    println!("held");
    std::future::pending().await
}

async fn crashes(url: &str) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    for round in 0..CRASHES / CONCURRENT_CRASHES {
        let mut crashes = JoinSet::new();
        for n in 0..CONCURRENT_CRASHES {
            let (url, group) = (url.to_owned(), format!("crash-{round}-{n}"));
            crashes.spawn(async move { crash(&url, &group).await });
        }
        while let Some(time) = crashes.join_next().await {
            times.push(time??);
        }
    }
    Ok(times)
}

async fn crash(url: &str, group: &str) -> Result<Duration> {
    let mut child = holder(url, group).await?;
    let mut standby = standby(url, group).await?;
    waiting(&mut standby).await?;
    let began = Instant::now();
    child.kill().await?;
    let guard = assigned(&mut standby).await?;
    let took = began.elapsed();
    drop(guard);
    standby.leave().await?;
    Ok(took)
}

async fn holder(url: &str, group: &str) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["hold", url, group]).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn()?;
    let output = child.stdout.take().context("no output")?;
    let mut lines = BufReader::new(output).lines();
    let line = tokio::time::timeout(ASSIGN_TIMEOUT, lines.next_line()).await??;
    ensure!(line.as_deref() == Some("held"), "unexpected output of the holder: {line:?}");
    Ok(child)
}

/// Measures the time until each of ten members holds its hundred of the thousand duties.
async fn settles(url: &str) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    for round in 0..3 {
        let group = format!("settle-{round}");
        let (told, mut heard) = tokio::sync::mpsc::channel(1_024);
        let began = Instant::now();
        let mut members = JoinSet::new();
        for n in 0..INSTANCES {
            let (url, group, told) = (url.to_owned(), group.clone(), told.clone());
            members.spawn(async move { member(n, &url, &group, &told).await });
        }
        let share = DUTIES as usize / INSTANCES;
        let mut held = [0; INSTANCES];
        let settled = async {
            while held.iter().any(|held| *held != share) {
                let (n, now) = heard.recv().await.context("the members have ended")?;
                held[n] = now;
            }
            anyhow::Ok(began.elapsed())
        };
        let settled = tokio::time::timeout(ASSIGN_TIMEOUT, settled).await;
        times.push(settled.with_context(|| format!("the group does not settle: {held:?}"))??);
        members.shutdown().await;
    }
    Ok(times)
}

/// Runs a member that holds what it is assigned and reports the number of its duties.
async fn member(
    n: usize,
    url: &str,
    group: &str,
    told: &tokio::sync::mpsc::Sender<(usize, usize)>,
) -> Result<()> {
    let mut member = join(url, group, Duties::Shards(DUTIES)).await?;
    let mut guards = std::collections::BTreeMap::new();
    while let Some(event) = member.next().await {
        match event {
            MembershipEvent::Assigned(guard) => {
                guards.insert(guard.duty().id.clone(), guard);
            }
            MembershipEvent::Stopping { hold, .. } | MembershipEvent::Revoked { hold, .. } => {
                guards.remove(&hold.duty.id);
            }
            _ => continue,
        }
        told.send((n, guards.len())).await?;
    }
    Ok(())
}
