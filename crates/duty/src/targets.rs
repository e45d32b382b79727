//! Lists of targets that need no server.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use tenure_core::{Code, DutyId, Label, Listing, StoreError, Target, Targets};

/// A list that never changes.
#[derive(Clone, Debug)]
pub struct StaticTargets(Listing);

impl StaticTargets {
    /// These targets.
    pub fn new(targets: impl IntoIterator<Item = Target>) -> Self {
        Self(Listing::new(targets))
    }
}

#[async_trait]
impl Targets for StaticTargets {
    async fn list(&self, most: usize) -> Result<Listing, StoreError> {
        match self.0.targets().len() {
            named if named > most => Err(too_many(most)),
            _ => Ok(self.0.clone()),
        }
    }
}

/// A file with one target per line: its id, then words that may follow after white space,
/// `zone=LABEL` and `paused`. Empty lines and lines that begin with `#` are skipped.
#[derive(Clone, Debug)]
pub struct FileTargets {
    path: PathBuf,
}

impl FileTargets {
    /// The largest file that is read.
    pub const MAX_BYTES: u64 = 64 << 20;

    /// The list in this file. A file that is not there is an error, not an empty list. Replace it
    /// by renaming another one over it, so that nobody reads the half of it.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }
}

#[async_trait]
impl Targets for FileTargets {
    async fn list(&self, most: usize) -> Result<Listing, StoreError> {
        let path = self.path.clone();
        let reading = tokio::task::spawn_blocking(move || read(&path, most));
        reading.await.unwrap_or_else(|_| Err(bad(&self.path, "reading it panicked")))
    }
}

fn bad(path: &Path, detail: impl std::fmt::Display) -> StoreError {
    StoreError::refused(Code::BadTargets, format!("{path:?}: {detail}"))
}

fn too_many(most: usize) -> StoreError {
    StoreError::refused(Code::TooManyTargets, format!("the limit is {most}"))
}

fn read(path: &Path, most: usize) -> Result<Listing, StoreError> {
    // Before it is opened: opening a pipe waits for somebody who writes to it.
    if !std::fs::metadata(path).map_err(|error| bad(path, error))?.is_file() {
        return Err(bad(path, "it is not a file"));
    }
    let file = File::open(path).map_err(|error| bad(path, error))?;
    let mut text = String::new();
    let most_bytes = FileTargets::MAX_BYTES;
    let read = file.take(most_bytes + 1).read_to_string(&mut text);
    if read.map_err(|error| bad(path, error))? as u64 > most_bytes {
        return Err(bad(path, format!("it is larger than {most_bytes} bytes")));
    }
    parse(&text, most).map_err(|error| match error {
        Refused::TooMany => too_many(most),
        Refused::Line(number, why) => bad(path, format!("line {number}: {why}")),
    })
}

#[derive(Debug, PartialEq, Eq)]
enum Refused {
    TooMany,
    Line(usize, String),
}

fn parse(text: &str, most: usize) -> Result<Listing, Refused> {
    let mut targets = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut words = line.split_whitespace();
        let Some(id) = words.next().filter(|id| !id.starts_with('#')) else { continue };
        // One more than the limit may be a repetition; ten times as many are a mistake.
        if targets.len() >= most.saturating_mul(10) {
            return Err(Refused::TooMany);
        }
        targets.push(target(id, words).map_err(|why| Refused::Line(number, why))?);
    }
    let listing = Listing::new(targets);
    if listing.targets().len() > most { Err(Refused::TooMany) } else { Ok(listing) }
}

fn target<'a>(id: &str, words: impl Iterator<Item = &'a str>) -> Result<Target, String> {
    let detail = |error: StoreError| error.problem().detail.clone();
    let mut target = Target::new(DutyId::new(id).map_err(detail)?);
    for word in words {
        match word.split_once('=') {
            Some(("zone", zone)) => target.zone = Some(Label::new(zone).map_err(detail)?),
            None if word == "paused" => target.paused = true,
            _ => {
                let word: String = word.chars().take(40).collect();
                return Err(format!("{word:?} is neither zone=LABEL nor paused"));
            }
        }
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(listing: &Listing) -> Vec<&str> {
        listing.targets().iter().map(|target| target.id.as_str()).collect()
    }

    #[test]
    fn a_line_is_a_target_and_words_follow_it() {
        let text = "# all of them\n\n b \tpaused zone=east\r\na\n  # c\na#1 zone=x\n";
        let listing = parse(text, 3).unwrap();
        assert_eq!(ids(&listing), ["a", "a#1", "b"]);
        let b = &listing.targets()[2];
        assert!(b.paused && b.zone.as_ref().is_some_and(|zone| zone.as_str() == "east"));
        assert!(parse("# nothing\n", 3).unwrap().targets().is_empty());
    }

    #[test]
    fn a_line_that_is_not_understood_spoils_the_list() {
        for (text, number) in [("a\nb pause", 2), ("a zone=", 1), ("a\n\nb zone", 3)] {
            let error = parse(text, 9).unwrap_err();
            assert!(matches!(error, Refused::Line(n, _) if n == number), "{error:?}");
        }
    }

    #[test]
    fn the_limit_counts_targets_and_not_lines() {
        assert_eq!(parse("a\nb\na\n", 2).unwrap().repeated(), 1);
        assert_eq!(parse("a\nb\nc\n", 2).unwrap_err(), Refused::TooMany);
        assert_eq!(parse(&"a\n".repeat(21), 2).unwrap_err(), Refused::TooMany);
    }

    #[tokio::test]
    async fn a_missing_file_is_an_error_and_no_empty_list() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("targets");
        let targets = FileTargets::new(&path);
        assert_eq!(targets.list(9).await.unwrap_err().code(), Code::BadTargets);
        std::fs::write(&path, "a\n").unwrap();
        assert_eq!(ids(&targets.list(9).await.unwrap()), ["a"]);
        std::fs::write(&path, b"a\n\xff\n").unwrap();
        assert_eq!(targets.list(9).await.unwrap_err().code(), Code::BadTargets);
        let folder = FileTargets::new(folder.path());
        assert_eq!(folder.list(9).await.unwrap_err().code(), Code::BadTargets);
    }

    #[tokio::test]
    async fn a_static_list_has_the_limit_too() {
        let target = |id: &str| Target::new(DutyId::new(id).unwrap());
        let targets = StaticTargets::new([target("a"), target("b")]);
        assert_eq!(targets.list(1).await.unwrap_err().code(), Code::TooManyTargets);
        assert_eq!(ids(&targets.list(2).await.unwrap()), ["a", "b"]);
    }
}
