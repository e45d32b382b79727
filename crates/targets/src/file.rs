//! Target list: a file.

use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::{DutyId, Listing, StoreError, Targets};

use crate::collect::{Collector, Entry};
use crate::error::{TargetsError, bad};
use crate::{TIMEOUT, blocking, json, within};

/// Maximum length of a line: an id with white space around it.
const MAX_LINE_BYTES: u64 = 2 * DutyId::MAX_NAME_BYTES as u64;

/// The targets in a file, read again at each listing: one id per line, or JSON.
///
/// Blank lines and lines that begin with `#` are skipped. The content is JSON if the name ends in
/// `.json` or it begins with `[`. An empty file is an error: it may be about to be written.
#[derive(Clone, Debug)]
pub struct FileTargets {
    path: PathBuf,
    timeout: Duration,
}

impl FileTargets {
    /// Creates a list from this file, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), timeout: TIMEOUT }
    }

    /// Sets the time limit of a listing.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

#[async_trait]
impl Targets for FileTargets {
    async fn list(&self, most: usize) -> Result<Listing, StoreError> {
        Ok(within(self.timeout, read(&self.path, most)).await?)
    }
}

pub(crate) async fn read(path: &Path, most: usize) -> Result<Listing, TargetsError> {
    let path = path.to_owned();
    blocking(move || read_file(&path, most)).await
}

fn read_file(path: &Path, most: usize) -> Result<Listing, TargetsError> {
    let unreadable = |error: io::Error| bad(format!("{} cannot be read: {error}", path.display()));
    let wrong = |what: &str| Err(bad(format!("{} {what}", path.display())));
    // Opening a pipe would block until it has a writer.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return wrong("is not a file");
    }
    let file = File::open(path).map_err(unreadable)?;
    if file.metadata().map_err(unreadable)?.len() == 0 {
        return wrong("is empty; for an empty list write `[]` or a line that begins with #");
    }
    let listing = undisturbed(&file, |file| {
        let mut text = BufReader::new(file);
        let first = text.fill_buf()?.trim_ascii_start().first().copied();
        let is_json = first == Some(b'[') || path.extension().is_some_and(|end| end == "json");
        Ok(match is_json {
            true => json::read(&mut text, most),
            false => lines(&mut text, most),
        })
    });
    let Some(listing) = listing.map_err(unreadable)? else {
        return wrong("was changed while it was read; write a new file and rename it into place");
    };
    listing.map_err(|error| error.at(path.display()))
}

/// Reads a file; `None` if it was changed meanwhile.
fn undisturbed<T>(file: &File, read: impl FnOnce(&File) -> io::Result<T>) -> io::Result<Option<T>> {
    let state = |file: Metadata| (file.len(), file.mtime(), file.mtime_nsec());
    let before = state(file.metadata()?);
    let found = read(file)?;
    Ok((state(file.metadata()?) == before).then_some(found))
}

fn lines(text: &mut impl BufRead, most: usize) -> Result<Listing, TargetsError> {
    let mut list = Collector::new(most);
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = text.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
        let read = read.map_err(|error| bad(format!("line {number}: {error}")))?;
        if read == 0 {
            break;
        }
        if read as u64 == MAX_LINE_BYTES && !line.ends_with(b"\n") {
            return Err(bad(format!("line {number} is longer than {MAX_LINE_BYTES} bytes")));
        }
        let word = str::from_utf8(&line).map_err(|_| bad(format!("line {number} is not UTF-8")))?;
        let word = word.trim();
        if word.is_empty() || word.starts_with('#') {
            continue;
        }
        list.add(&Entry { id: word, ..Entry::default() })
            .map_err(|error| error.at(format_args!("line {number}")))?;
    }
    Ok(list.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_was_written_to_meanwhile_does_not_count() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"a").unwrap();
        assert_eq!(undisturbed(&file, |_| Ok(1)).unwrap(), Some(1));
        let written = undisturbed(&file, |mut file| file.write_all(b"b"));
        assert_eq!(written.unwrap(), None);
    }
}
