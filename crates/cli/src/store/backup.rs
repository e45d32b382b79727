//! `tenure store backup`: a copy of a store in files, made while it is in use.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, IsTerminal as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_core::text::counted;
use tenure_core::{Clock as _, Code, StoreError};
use tenure_store::backup::BackupContents;
use tenure_store::{BootClock, StoreUrl};
use tenure_supervise::state::is_same_file;
use tenure_switchboard::storage::sqlite::count_messages;

use super::staging::{complete, folder_beside, remove_on_signal};
use crate::args::Global;
use crate::failure::Failure;
use crate::output::{StatusLine, shown, to_stderr};

/// Standard output, or standard input of a restore.
pub(super) const STANDARD_STREAM: &str = "-";
/// Name of a new backup in its temporary folder, and of the backup that it replaces.
const NEW: &str = "new";
const OLD: &str = "old";
/// Beginning of all names in the backup of a cursor file.
const CURSOR_PREFIX: &str = "cursor.json";
/// Files of a SQLite store beside the database.
const SIDE_FILES: [&str; 3] = ["-wal", "-shm", "-boot"];

pub(super) fn run(to: Option<&Path>, force: bool, global: &Global) -> Result<String, Failure> {
    let url = global.url()?;
    refuse_server(&url, global)?;
    let Some(to) = to else {
        return Err(Failure::Usage("name a new file or folder for the backup, or -".to_owned()));
    };
    if to == Path::new(STANDARD_STREAM) {
        return to_standard_output(&url, global);
    }
    check_place(&url, to, force)?;
    let folder = folder_beside(to)?;
    let (copy, held) = make(&url, folder.path())?;
    let copy = if url.cursor_path().is_some() { folder.path().join(NEW) } else { copy };
    complete();
    put(&copy, to, force, &folder).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => exists(to),
        _ => unusable(to, &format!("it cannot be put there: {error}")),
    })?;
    Ok(held.show(&url, to, global))
}

/// Refuses a store on a server, and prints the commands of its own tools.
pub(super) fn refuse_server(url: &StoreUrl, global: &Global) -> Result<(), Failure> {
    let Some(commands) = url.backup_commands()? else { return Ok(()) };
    let lines: Vec<&str> = commands.lines().filter(|line| !line.starts_with('#')).collect();
    let value = json!({ "store": url.to_string(), "commands": lines });
    let report = global.show(&value, || commands.clone());
    let detail = format!("{url} is on a server, which has its own tools");
    let error = StoreError::refused(Code::BadBackup, detail);
    Err(Failure::partly(report, error, "nothing was changed")
        .hinting("run the printed commands; after a restore, `tenure store adopt`"))
}

/// Content of a backup, with that of the switchboard.
#[derive(Clone, Copy)]
pub(super) struct Held {
    pub(super) contents: BackupContents,
    /// Number of messages in the inbox; `None` without a switchboard.
    messages: Option<u64>,
}

impl Held {
    pub(super) fn new(url: &StoreUrl, contents: BackupContents) -> Result<Self, StoreError> {
        let messages = match url.cursor_path() {
            Some(_) => None,
            None => count_messages(&url.local_path()?).map_err(StoreError::from)?,
        };
        Ok(Self { contents, messages })
    }

    pub(super) fn value(&self, url: &StoreUrl, backup: &Path) -> Value {
        let BackupContents { groups, duties, checkpoints, newest_epoch } = self.contents;
        json!({
            "store": url.to_string(),
            "backup": backup.display().to_string(),
            "groups": groups,
            "duties": duties,
            "checkpoints": checkpoints,
            "newest_epoch": newest_epoch.get(),
            "messages": self.messages,
        })
    }

    pub(super) fn text(&self) -> String {
        let BackupContents { groups, duties, checkpoints, newest_epoch } = self.contents;
        let groups = counted(groups, "group", "groups");
        let duties = counted(duties, "duty", "duties");
        let checkpoints = counted(checkpoints, "checkpoint", "checkpoints");
        let text = format!("{groups}, {duties}, {checkpoints}\nnewest epoch: {newest_epoch}\n");
        let inbox = self.messages.map(|messages| format!("messages in the inbox: {messages}\n"));
        text + &inbox.unwrap_or_default()
    }

    fn show(&self, url: &StoreUrl, backup: &Path, global: &Global) -> String {
        global.show(&self.value(url, backup), || {
            let (url, backup) = (url.to_string(), backup.display().to_string());
            format!("{}: backup of {}\n{}", shown(&backup), shown(&url), self.text())
        })
    }
}

/// Copies the store into the folder; returns the path of the copy.
fn make(url: &StoreUrl, folder: &Path) -> Result<(PathBuf, Held), Failure> {
    let new = folder.join(NEW);
    fs::create_dir(&new).context("cannot create a folder for the copy")?;
    fs::set_permissions(&new, Permissions::from_mode(0o700)).context("cannot protect the copy")?;
    let (mut line, began) = (StatusLine::default(), BootClock.now());
    let mut progress = |done: u64, all: u64| {
        if BootClock.now().since(began).as_secs() > 0 {
            line.show(&format!("copied {} %", 100 * done / all.max(1)));
        }
    };
    let (copy, contents) = url.back_up(&new, &mut progress)?;
    Ok((copy.local_path()?, Held::new(&copy, contents)?))
}

fn to_standard_output(url: &StoreUrl, global: &Global) -> Result<String, Failure> {
    if url.cursor_path().is_some() {
        let why = "the backup of a cursor file is a folder: name a new one";
        return Err(Failure::Usage(why.to_owned()));
    }
    if io::stdout().is_terminal() {
        return Err(Failure::Usage("standard output is a terminal: redirect it".to_owned()));
    }
    let folder = tempfile::tempdir().context("cannot create a temporary folder")?;
    remove_on_signal(&folder);
    let (copy, held) = make(url, folder.path())?;
    let copied = File::open(copy).and_then(|mut copy| io::copy(&mut copy, &mut io::stdout()));
    copied.context("cannot write to standard output")?;
    complete();
    to_stderr(&held.show(url, Path::new(STANDARD_STREAM), global));
    Ok(String::new())
}

/// Refuses a place with something that would be lost.
fn check_place(url: &StoreUrl, to: &Path, force: bool) -> Result<(), StoreError> {
    let own = url.local_path()?;
    let ending = |end: &str| {
        let mut name = own.clone().into_os_string();
        name.push(end);
        name
    };
    let beside = SIDE_FILES.map(ending).into_iter().chain([ending(".tenure")]);
    if is_same_file(&own, to) || beside.into_iter().any(|own| is_same_file(own.as_ref(), to)) {
        return Err(unusable(to, "it belongs to the store itself"));
    }
    let Ok(found) = to.symlink_metadata() else { return Ok(()) };
    if !force {
        return Err(exists(to));
    }
    let is_backup = match url.cursor_path() {
        None => found.is_file(),
        Some(_) => found.is_dir() && holds_only_cursors(to),
    };
    if is_backup { Ok(()) } else { Err(unusable(to, "it is not a backup that can be replaced")) }
}

fn holds_only_cursors(folder: &Path) -> bool {
    let is_ours = |name: &OsStr| name.to_string_lossy().starts_with(CURSOR_PREFIX);
    let all = |mut entries: fs::ReadDir| {
        entries.all(|entry| entry.is_ok_and(|entry| is_ours(&entry.file_name())))
    };
    fs::read_dir(folder).is_ok_and(all)
}

/// Renames a copy to its place, and makes that durable.
fn put(copy: &Path, to: &Path, force: bool, folder: &TempDir) -> io::Result<()> {
    if force && to.is_dir() {
        fs::rename(to, folder.path().join(OLD))?;
    }
    let is_file = copy.is_file();
    match renameat_with(CWD, copy, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        Err(_) if force && is_file => fs::rename(copy, to)?,
        Err(error) => return Err(error.into()),
    }
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

fn exists(to: &Path) -> StoreError {
    unusable(to, "it exists: choose another place, or replace it with --force")
}

pub(super) fn unusable(path: &Path, why: &str) -> StoreError {
    StoreError::refused(Code::BadBackup, format!("{}: {why}", path.display()))
}
