//! State file: a program that keeps its state in a file gets it from the store, and every new
//! content is stored as the checkpoint of the duty.
//!
//! The store may lag behind the file, and never leads it while the program runs.
//!
//! Why: docs/decisions/0047-a-state-file-follows-the-store.md

mod processes;
mod task;
mod watch;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::OFlags;
use rustix::process::Pid;
use tenure_core::{Code, Document, DutyId, LogLevel, StoreError};
use tenure_duty::Guard;
use tenure_operate::replace_or_create;

use crate::observe::{LogEvent, Recorder};

pub(crate) use task::StateTask;
use watch::FileWatches;

/// Attempts to read a file that keeps being replaced.
const MAX_READS: u32 = 5;
/// Mode of a new state file, which may contain secrets.
const NEW_STATE_MODE: u32 = 0o600;
/// Ending of the name under which the previous file is kept.
const BEFORE: &str = ".before";

/// A state file, or one per duty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSettings {
    /// Path of the file; `{}` in it becomes the id of the duty.
    pub path: PathBuf,
    /// Whether a file that is not empty becomes the first checkpoint.
    pub import: bool,
}

impl StateSettings {
    /// Whether each duty has a file of its own.
    pub fn is_per_duty(&self) -> bool {
        self.path.as_os_str().as_bytes().windows(2).any(|two| two == b"{}")
    }

    /// Returns the path of a duty's file. No id leads to another folder: escaped, it has no slash.
    /// No file is what another one was before.
    fn path_of(&self, duty: &DutyId) -> PathBuf {
        let name = match (duty.as_str(), duty.to_string()) {
            (dots @ ("." | ".."), _) => dots.replace('.', "%2E"),
            (_, name) => match name.strip_suffix(BEFORE) {
                Some(stem) => format!("{stem}{}", BEFORE.replace('.', "%2E")),
                None => name,
            },
        };
        fill_in(self.path.as_os_str(), &name).into()
    }
}

/// The state files of this process.
#[derive(Clone, Debug)]
pub(crate) struct StateFiles {
    settings: StateSettings,
    recorder: Recorder,
    watches: Arc<FileWatches>,
}

impl StateFiles {
    pub(crate) fn new(
        settings: Option<&StateSettings>,
        recorder: &Recorder,
    ) -> io::Result<Option<Self>> {
        let Some(settings) = settings.cloned() else { return Ok(None) };
        let watches = Arc::new(FileWatches::new()?);
        Ok(Some(Self { settings, recorder: recorder.clone(), watches }))
    }

    /// Returns the state file of a duty.
    pub(crate) fn of(&self, duty: &DutyId) -> StateFile {
        let Self { settings, recorder, watches } = self.clone();
        let (path, stored) = (settings.path_of(duty), Arc::default());
        StateFile { path, import: settings.import, recorder, watches, stored }
    }
}

/// Replaces `{}` in a word.
pub(crate) fn fill_in(word: &OsStr, value: &str) -> OsString {
    let (mut filled, mut rest) = (Vec::new(), word.as_bytes());
    while let Some(at) = rest.windows(2).position(|two| two == b"{}") {
        filled.extend([&rest[..at], value.as_bytes()].concat());
        rest = &rest[at + 2..];
    }
    filled.extend(rest);
    OsString::from_vec(filled)
}

/// The state file of one duty.
#[derive(Clone, Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
    import: bool,
    recorder: Recorder,
    watches: Arc<FileWatches>,
    /// Content that is stored, as far as this process knows.
    stored: Arc<Mutex<Option<Vec<u8>>>>,
}

/// Content of a state file, and the identity of the file that it was read from.
struct StateContent {
    bytes: Vec<u8>,
    file: Metadata,
}

impl StateFile {
    /// Makes the file what the store has, before the program starts. The previous file is kept.
    /// A file without a checkpoint in the store is refused, unless it is to be imported.
    pub(crate) async fn restore(&self, hold: &Guard) -> Result<(), StoreError> {
        let found = self.read()?;
        let stored = match (hold.load().await?, found) {
            (Some(checkpoint), found) => {
                let stored = checkpoint.document.as_bytes().to_vec();
                if found.as_ref().is_none_or(|found| found.bytes != stored) {
                    self.replace(hold, found.as_ref(), &stored)?;
                }
                stored
            }
            (None, Some(found)) => {
                if found.bytes.is_empty() {
                    let why = "it is empty, and the store has no checkpoint: remove it, to begin \
                               from the start";
                    return Err(self.unusable(why));
                }
                if !self.import {
                    let path = self.path.display();
                    let detail = format!("{} has no checkpoint, and {path} exists", hold.duty());
                    return Err(StoreError::refused(Code::StateNotImported, detail));
                }
                self.check_form(&found.bytes)?;
                hold.commit(Document::new(found.bytes.clone())?).await?;
                found.bytes
            }
            (None, None) => return Ok(()),
        };
        self.set_stored(Some(stored));
        Ok(())
    }

    /// Starts to store what the program below the process `guard` writes, until the result is
    /// finished.
    pub(crate) fn follow(&self, hold: &Guard, guard: Pid) -> io::Result<StateTask> {
        StateTask::start(self.clone(), hold.clone(), guard)
    }

    /// Reads the file; `None` if it does not exist. A file that is replaced meanwhile is
    /// read again.
    fn read(&self) -> Result<Option<StateContent>, StoreError> {
        for _ in 0..MAX_READS {
            match self.read_once() {
                Ok(Some(content)) => return Ok(Some(content)),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(self.unusable(&error.to_string())),
            }
        }
        Err(self.unusable("it keeps changing while it is read"))
    }

    /// Reads the file; `None` if it was changed or replaced meanwhile.
    fn read_once(&self) -> io::Result<Option<StateContent>> {
        let refused = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        let found = self.path.symlink_metadata()?;
        if found.is_symlink() {
            return refused("it is a symbolic link; name the file itself");
        }
        if !found.is_file() {
            return refused("it is not a regular file");
        }
        // Neither a link nor a pipe that has taken its place.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let mut file = File::options().read(true).custom_flags(flags).open(&self.path)?;
        let before = file.metadata()?;
        let most = Document::MAX_DOCUMENT_BYTES as u64;
        if before.len() > most {
            return refused(&format!("it has {} bytes, and the limit is {most}", before.len()));
        }
        let mut bytes = Vec::new();
        (&mut file).take(most + 1).read_to_end(&mut bytes)?;
        let same = |found: &Metadata| identity(found) == identity(&before);
        let whole = bytes.len() as u64 == before.len() && same(&file.metadata()?);
        Ok((whole && same(&self.path.symlink_metadata()?))
            .then_some(StateContent { bytes, file: before }))
    }

    /// Refuses a content that a reader of the file would refuse.
    fn check_form(&self, bytes: &[u8]) -> Result<(), StoreError> {
        let is_json = self.path.extension() == Some(OsStr::new("json"));
        match is_json.then(|| serde_json::from_slice::<serde::de::IgnoredAny>(bytes)) {
            Some(Err(error)) => Err(self.unusable(&format!("it is not valid JSON: {error}"))),
            _ => Ok(()),
        }
    }

    /// Replaces the file, and keeps the previous one beside it.
    fn replace(
        &self,
        hold: &Guard,
        found: Option<&StateContent>,
        stored: &[u8],
    ) -> Result<(), StoreError> {
        let found = found.filter(|found| !found.bytes.is_empty());
        found.map(|found| self.keep_before(found)).transpose()?;
        let replaced = replace_or_create(&self.path, stored, NEW_STATE_MODE);
        replaced.map_err(|error| self.unusable(&format!("it cannot be replaced: {error}")))?;
        if found.is_some() {
            let reason = format!("the file before is {}", self.before().display());
            let duty = Some((hold.duty().clone(), hold.epoch()));
            let event = "state_restored";
            self.recorder.log(LogEvent { level: LogLevel::Info, event, duty, reason });
        }
        Ok(())
    }

    /// Keeps the file beside it. What is there is replaced only if it is a file: a link may lead to
    /// one of another program, and nobody may read a pipe.
    fn keep_before(&self, found: &StateContent) -> Result<(), StoreError> {
        let before = self.before();
        let kept = match before.symlink_metadata() {
            Ok(other) if !other.is_file() => Err(io::Error::other("it is not a regular file")),
            _ => replace_or_create(&before, &found.bytes, found.file.mode() & 0o777),
        };
        kept.map_err(|error| {
            let before = before.display();
            self.unusable(&format!("it cannot be kept as {before}: {error}"))
        })
    }

    fn before(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(BEFORE);
        name.into()
    }

    fn unusable(&self, why: &str) -> StoreError {
        let detail = format!("{}: {why}", self.path.display());
        StoreError::refused(Code::BadStateFile, detail)
    }

    /// Whether the file is what the store has, as far as this process knows.
    pub(crate) fn is_current(&self) -> bool {
        let found = self.read();
        found.is_ok_and(|found| found.is_some_and(|found| self.is_stored(&found.bytes)))
    }

    fn is_stored(&self, bytes: &[u8]) -> bool {
        let stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        stored.as_deref() == Some(bytes)
    }

    fn set_stored(&self, bytes: Option<Vec<u8>>) {
        *self.stored.lock().unwrap_or_else(PoisonError::into_inner) = bytes;
    }
}

/// Fields that change when a file is written or replaced.
fn identity(file: &Metadata) -> (u64, u64, u64, i64, i64) {
    (file.dev(), file.ino(), file.len(), file.mtime(), file.mtime_nsec())
}

/// Whether two paths name the same file, as far as it exists.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let folder = path.parent().and_then(|folder| fs::canonicalize(folder).ok());
        let whole = folder.zip(path.file_name()).map(|(folder, name)| folder.join(name));
        fs::canonicalize(&path).ok().or(whole).unwrap_or(path)
    };
    real(one) == real(other)
}

#[cfg(test)]
mod tests;
