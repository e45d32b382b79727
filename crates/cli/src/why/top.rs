//! `tenure top`: a group, or all, as they are from moment to moment.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IsTerminal, Write as _};
use std::sync::Arc;
use std::time::Duration;

use rustix::termios::{Winsize, tcgetwinsize};
use serde_json::{Value, json};
use tenure_core::store::{AuditEntry, AuditKind, Member};
use tenure_core::text::{counted, span};
use tenure_core::{Code, GroupName, InstanceId, Label, Store, StoreError};
use tenure_duty::process;
use tenure_store::{IfAbsent, StoreUrl};
use tokio::time::{MissedTickBehavior, interval};

use super::duties;
use super::state::{self, State};
use super::trail::{self, Trail};
use crate::args::{duration, group_name};
use crate::failure::Failure;
use crate::ls::{millis, or_nothing};
use crate::output::shown;
use crate::signals::{Signals, ends};
use crate::table::{Align, Column, lay_out};
use crate::time;

/// How far back moves are counted.
const WINDOW_MS: u64 = 60_000;
/// How many of them people are shown.
const SHOWN: usize = 8;
/// Home, without clearing: what is painted over does not flicker.
const HOME: &str = "\u{1b}[H";
const END_OF_LINE: &str = "\u{1b}[K";
const BELOW: &str = "\u{1b}[J";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this group, as it is printed
    group: Option<String>,
    /// How often it is read
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    every: Duration,
    /// Show it once
    #[arg(long)]
    once: bool,
}

#[derive(Debug)]
pub(crate) struct Task {
    group: Option<GroupName>,
    every: Duration,
    once: bool,
}

impl Task {
    pub(crate) fn new(args: &Args) -> Result<Self, Failure> {
        let limits = Duration::from_millis(50)..=Duration::from_secs(86_400);
        if !limits.contains(&args.every) {
            let (least, most) = (limits.start(), limits.end());
            let what = format!(
                "--every {} is outside: {} to {}",
                span(args.every),
                span(*least),
                span(*most)
            );
            return Err(Failure::Usage(what));
        }
        let group = args.group.as_deref().map(group_name);
        Ok(Self { group: group.transpose()?, every: args.every, once: args.once })
    }
}

pub(crate) async fn run(url: &StoreUrl, task: Task, json: bool) -> Result<(), Failure> {
    let mut signals = Signals::listen().map_err(anyhow::Error::from)?;
    let repaint = !json && !task.once && io::stdout().is_terminal();
    if repaint {
        print("\u{1b}[2J")?;
    }
    let mut watcher =
        Watcher { url, only: task.group.clone(), store: None, trails: BTreeMap::new() };
    let mut ever = false;
    let mut ticks = interval(task.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = ended(&mut signals) => return Ok(()),
        }
        let read = tokio::select! {
            read = watcher.read() => read,
            () = ended(&mut signals) => return Ok(()),
        };
        let gives_up = |error: &StoreError| task.once || (!ever && !is_away(error));
        let frame = match read {
            Err(error) if gives_up(&error) => return Err(error.into()),
            Err(error) => {
                // Whatever broke, a new beginning mends it or says what is wrong.
                watcher.store = None;
                Frame { unix_ms: process::unix_ms(), read: Err(error) }
            }
            Ok(groups) => {
                ever = true;
                Frame { unix_ms: process::unix_ms(), read: Ok(groups) }
            }
        };
        let text = match (json, repaint) {
            (true, _) => format!("{}\n", frame.value(url)),
            (false, true) => painted(&frame.text(url), tcgetwinsize(io::stdout()).ok()),
            (false, false) => format!("{}\n", frame.text(url)),
        };
        if !print(&text)? || task.once {
            return Ok(());
        }
    }
}

/// Returns when a signal asks for the end.
async fn ended(signals: &mut Signals) {
    while !ends(signals.next().await) {}
}

/// Whether it is worth waiting for a store that was not there yet.
fn is_away(error: &StoreError) -> bool {
    matches!(error.code(), Code::Unreachable | Code::Lost | Code::Busy)
}

/// Prints, and says whether anybody reads on.
fn print(text: &str) -> Result<bool, Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => {
            Err(anyhow::Error::from(error).context("cannot write to standard output").into())
        }
    }
}

/// Whether the trouble is with one group, and others can be read.
fn is_of_group(error: &StoreError) -> bool {
    matches!(error.code(), Code::Damaged | Code::BadInput)
}

/// Over what was there before, as much as the window has room for.
fn painted(text: &str, window: Option<Winsize>) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let (fits, more) = match window {
        // A terminal that does not know its size says zero.
        Some(size) if size.ws_row > 0 && size.ws_col > 0 => clip(&lines, size),
        _ => (&lines[..], None),
    };
    let more = more.as_deref();
    let lines = fits.iter().copied().chain(more).map(|line| format!("{line}{END_OF_LINE}\n"));
    format!("{HOME}{}{BELOW}", lines.collect::<String>())
}

/// The lines that fit, and what is said instead of the rest. The cursor has the last row.
fn clip<'a>(lines: &'a [&'a str], size: Winsize) -> (&'a [&'a str], Option<String>) {
    let room = usize::from(size.ws_row) - 1;
    // The terminal breaks long lines.
    let rows = |line: &&str| line.chars().count().div_ceil(size.ws_col.into()).max(1);
    if lines.iter().map(rows).sum::<usize>() <= room {
        return (lines, None);
    }
    let ends = lines.iter().scan(0, |end, line| {
        *end += rows(line);
        Some(*end)
    });
    let fits = ends.take_while(|end| *end < room).count();
    let more = format!("... {}", counted(lines.len() - fits, "more line", "more lines"));
    // The terminal may be narrower than this.
    (&lines[..fits], Some(more.chars().take(size.ws_col.into()).collect()))
}

/// Reads the groups again and again.
struct Watcher<'a> {
    url: &'a StoreUrl,
    only: Option<GroupName>,
    store: Option<Arc<dyn Store>>,
    trails: BTreeMap<GroupName, Recent>,
}

/// The part of an audit trail that is recent.
#[derive(Default)]
struct Recent {
    /// All up to this entry is older.
    after: u64,
    entries: Vec<AuditEntry>,
}

impl Watcher<'_> {
    async fn read(&mut self) -> Result<Vec<Seen>, StoreError> {
        let store = match &self.store {
            Some(store) => Arc::clone(store),
            None => {
                let store = self.url.open(IfAbsent::Refuse, process::entropy()).await?;
                // A store that was replaced counts anew.
                self.trails.clear();
                Arc::clone(self.store.insert(store))
            }
        };
        let groups = match &self.only {
            Some(group) => vec![group.clone()],
            None => store.groups().await?,
        };
        let mut seen = Vec::with_capacity(groups.len());
        for group in groups {
            let look = match self.look(&*store, &group).await {
                Err(error) if self.only.is_none() => match error.code() {
                    // Gone since it was listed.
                    Code::NotThere => continue,
                    _ if is_of_group(&error) => Err(error),
                    _ => return Err(error),
                },
                look => Ok(look?),
            };
            seen.push(Seen { group, look });
        }
        Ok(seen)
    }

    async fn look(&mut self, store: &dyn Store, group: &GroupName) -> Result<Look, StoreError> {
        let state = State::read(store, group).await?;
        let recent = self.trails.entry(group.clone()).or_default();
        recent.read(store, group).await?;
        Ok(Look { state, recent: recent.entries.clone() })
    }
}

impl Recent {
    /// Entries of the last minute; they are read again as long as they are recent, because one may
    /// appear a moment after others with larger numbers. The newest entry stands for the store's
    /// clock where this machine's is behind.
    async fn read(&mut self, store: &dyn Store, group: &GroupName) -> Result<(), StoreError> {
        let Trail(mut entries) = Trail::after(store, group, self.after).await?;
        let now = entries.iter().map(|entry| entry.unix_ms).fold(process::unix_ms(), u64::max);
        let old = |entry: &AuditEntry| entry.unix_ms + WINDOW_MS < now;
        let recent = entries.iter().position(|entry| !old(entry)).unwrap_or(entries.len());
        if let Some(last) = entries[..recent].last() {
            self.after = last.seq;
        }
        self.entries = entries.split_off(recent);
        Ok(())
    }
}

/// A group at a moment, or why it cannot be read.
struct Seen {
    group: GroupName,
    look: Result<Look, StoreError>,
}

/// A group that was read.
struct Look {
    state: State,
    recent: Vec<AuditEntry>,
}

/// All that was read at a moment.
struct Frame {
    unix_ms: u64,
    read: Result<Vec<Seen>, StoreError>,
}

impl Frame {
    fn text(&self, url: &StoreUrl) -> String {
        let head = format!("{}  {}", time::shown(self.unix_ms), shown(&url.to_string()));
        match &self.read {
            Err(error) => {
                let what = shown(&error.problem().to_string());
                format!("{head}\nthe store is away, it is tried again: {what}\n")
            }
            Ok(groups) if groups.is_empty() => format!("{head}\nno groups yet\n"),
            Ok(groups) => {
                let groups: String = groups.iter().map(Seen::text).collect();
                format!("{head}\n{groups}")
            }
        }
    }

    fn value(&self, url: &StoreUrl) -> Value {
        let error = self.read.as_ref().err().map(told);
        let groups = self.read.as_ref().ok();
        json!({
            "unix_ms": self.unix_ms,
            "store": url.to_string(),
            "away": self.read.is_err(),
            "error": error,
            "groups": groups.map(|groups| groups.iter().map(Seen::value).collect::<Vec<_>>()),
        })
    }
}

/// An error, for programs.
fn told(error: &StoreError) -> Value {
    json!({ "code": error.code().as_str(), "detail": error.problem().detail })
}

impl Seen {
    fn text(&self) -> String {
        match &self.look {
            Ok(look) => look.text(),
            Err(error) => {
                let what = shown(&error.problem().to_string());
                format!("\ngroup {}  cannot be read: {what}\n", self.group)
            }
        }
    }

    fn value(&self) -> Value {
        match &self.look {
            Ok(look) => look.value(),
            Err(error) => json!({
                "group": self.group.to_string(),
                "error": told(error),
                "layout": null,
                "duties": null,
                "members": null,
                "last_minute": null,
            }),
        }
    }
}

const COLUMNS: [Column; 7] = [
    Column("MEMBER", Align::Left),
    Column("WEIGHT", Align::Right),
    Column("ZONE", Align::Left),
    Column("HOLDS", Align::Right),
    Column("ROOM", Align::Right),
    Column("REMAINING_MS", Align::Right),
    Column("STATE", Align::Left),
];

const MOVES: [Column; 5] = [
    Column("WHEN", Align::Left),
    Column("EVENT", Align::Left),
    Column("DUTY", Align::Left),
    Column("INSTANCE", Align::Left),
    Column("REASON", Align::Left),
];

/// How many duties are what.
struct Tally {
    known: usize,
    held: usize,
    free: usize,
    paused: usize,
}

impl Look {
    fn tally(&self) -> Tally {
        let (known, held) = (self.state.known(), self.state.held());
        let paused = |duty: &&_| !held.contains_key(*duty) && self.state.group.pauses(duty);
        let paused = known.iter().filter(paused).count();
        let taken = known.iter().filter(|duty| held.contains_key(*duty)).count();
        let known = known.len();
        Tally { known, held: held.len(), free: known - taken - paused, paused }
    }

    fn count(&self, kind: AuditKind) -> usize {
        let of_duty = |entry: &&AuditEntry| entry.kind == kind && entry.duty.is_some();
        self.recent.iter().filter(of_duty).count()
    }

    fn holds(&self) -> BTreeMap<&InstanceId, usize> {
        let mut holds = BTreeMap::new();
        for holder in self.state.holders.iter().filter_map(|holder| holder.holder.as_ref()) {
            *holds.entry(&holder.instance).or_default() += 1;
        }
        holds
    }

    fn text(&self) -> String {
        let Tally { known, held, free, paused } = self.tally();
        let free = match self.state.has_targets() {
            true => format!("{free} free or gone from the list"),
            false => format!("{free} free"),
        };
        let layout = or_nothing(self.state.layout());
        let holds = self.holds();
        let rows = self.state.members.iter().map(|member| {
            let seat = state::seat(member, &self.state.group);
            let room = seat.as_ref().map(|seat| seat.room).filter(|room| *room < usize::MAX);
            let zone = seat.as_ref().and_then(|seat| seat.zone.as_ref());
            let words = state::standing(member, &self.state.group).join(",");
            [
                member.instance.to_string(),
                or_nothing(seat.as_ref().map(|seat| seat.weight)),
                or_nothing(zone),
                holds.get(&member.instance).copied().unwrap_or(0).to_string(),
                or_nothing(room),
                millis(member.remaining).to_string(),
                or_nothing(Some(words).filter(|words| !words.is_empty())),
            ]
        });
        let members = lay_out(&COLUMNS, &rows.collect::<Vec<_>>());
        let counts = [AuditKind::Granted, AuditKind::Released, AuditKind::Expired]
            .map(|kind| format!("{} {}", self.count(kind), kind.as_str()));
        format!(
            "\ngroup {}  layout {layout}\n{}: {held} held, {free}, {paused} paused\n\
             last minute: {}\n\n{members}{}",
            self.state.name,
            duties(known),
            counts.join(", "),
            self.moves(),
        )
    }

    /// The newest of what happened in the last minute.
    fn moves(&self) -> String {
        if self.recent.is_empty() {
            return String::new();
        }
        let newest = &self.recent[self.recent.len().saturating_sub(SHOWN)..];
        let row = |entry: &AuditEntry| {
            [
                time::shown(entry.unix_ms),
                entry.kind.as_str().to_owned(),
                or_nothing(entry.duty.as_ref()),
                entry.instance.to_string(),
                shown(&entry.reason),
            ]
        };
        format!("\n{}", lay_out(&MOVES, &newest.iter().map(row).collect::<Vec<_>>()))
    }

    fn value(&self) -> Value {
        let Tally { known, held, free, paused } = self.tally();
        let holds = self.holds();
        let member = |member: &Member| {
            let seat = state::seat(member, &self.state.group);
            let zone = seat.as_ref().and_then(|seat| seat.zone.as_ref());
            json!({
                "instance": member.instance.to_string(),
                "weight": seat.as_ref().map(|seat| seat.weight),
                "zone": zone.map(Label::to_string),
                "room": seat.as_ref().map(|seat| seat.room),
                "holds": holds.get(&member.instance).copied().unwrap_or(0),
                "remaining_ms": millis(member.remaining),
                "state": state::standing(member, &self.state.group),
            })
        };
        json!({
            "group": self.state.name.to_string(),
            "error": null,
            "layout": self.state.layout().map(|layout| layout.to_string()),
            "duties": { "known": known, "held": held, "free": free, "paused": paused },
            "members": self.state.members.iter().map(member).collect::<Vec<_>>(),
            "last_minute": self.recent.iter().map(trail::value).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_not_longer_than_the_window() {
        let size = |ws_row, ws_col| Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
        let text = "one\ntwo and more\n\nfour\n";
        let plain = |window| painted(text, window).replace(END_OF_LINE, "");
        let whole = format!("{HOME}{text}{BELOW}");
        for window in [None, Some(size(0, 0)), Some(size(5, 80)), Some(size(6, 11))] {
            assert_eq!(plain(window), whole, "{window:?}");
        }
        let cut = |lines: &str| format!("{HOME}{lines}{BELOW}");
        assert_eq!(plain(Some(size(4, 80))), cut("one\ntwo and more\n... 2 more lines\n"));
        // The second line takes two rows.
        assert_eq!(plain(Some(size(4, 11))), cut("one\n... 3 more \n"));
        assert_eq!(plain(Some(size(2, 80))), cut("... 4 more lines\n"));
    }
}
