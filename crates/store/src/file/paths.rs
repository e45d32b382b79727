//! Names of a store's files.

use std::path::{Path, PathBuf};

use tenure_core::{DutyId, DutyKey, GroupName, Version};
use tenure_wire::folder::sha256;

/// Length limit of a name, which leaves room for suffixes; most file systems allow 255 bytes.
const MAX_NAME_BYTES: usize = 200;

/// Suffix of the folder next to the cursor file.
pub(crate) const FOLDER_SUFFIX: &str = ".tenure";

/// Infix between the name of the cursor file and that of another duty.
const PARTITION_INFIX: &str = ".partition-";

/// Suffix of a file that is being written.
const TEMP_SUFFIX: &str = ".tenure-tmp";

/// Suffix of a damaged file that was set aside, followed by a number.
const CORRUPT_SUFFIX: &str = ".corrupt-";

/// Suffix of a checkpoint that is about to be stored, after its version.
const PENDING_SUFFIX: &str = ".next.json";

/// The names of all files of a store.
#[derive(Clone, Debug)]
pub(super) struct FilePaths {
    path: PathBuf,
    /// The duty whose checkpoint is the file at the path itself.
    pub(super) main: DutyKey,
}

/// Returns a name, or a hash of it if it is too long or looks like another kind of file. `~` does
/// not occur in escaped names.
fn fitting(name: String, most: usize) -> String {
    let ends_like_ours = name.ends_with(TEMP_SUFFIX) || is_aside(&name);
    if name.len() > most || ends_like_ours { format!("~{}", &sha256(&name)[..40]) } else { name }
}

pub(super) fn is_aside(name: &str) -> bool {
    let number = name.rsplit_once(CORRUPT_SUFFIX).map(|(_, number)| number);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(end);
    path.with_file_name(name)
}

impl FilePaths {
    pub(super) fn new(path: PathBuf, main: DutyKey) -> Self {
        Self { path, main }
    }

    /// The cursor file of the main duty.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Name of the file that keeps others out while a restore replaces the files.
    pub(super) const RESTORING: &str = "restoring";

    /// Whether a file beside the folder belongs to the store, by its name.
    #[cfg(feature = "sqlite")]
    pub(super) fn is_beside(&self, name: &str) -> bool {
        let own = self.path.file_name().unwrap_or_default().to_string_lossy();
        let rest = name.strip_prefix(&*own);
        rest.is_some_and(|rest| {
            rest.is_empty() || rest.starts_with(PARTITION_INFIX) || rest.starts_with(CORRUPT_SUFFIX)
        })
    }

    /// The folder of all cursor files.
    pub(super) fn parent(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// The folder for everything that is not a cursor.
    pub(super) fn folder(&self) -> PathBuf {
        beside(&self.path, FOLDER_SUFFIX)
    }

    /// Returns the folders of stores that own this file, if they exist: its name has the form of
    /// another duty's cursor.
    pub(super) fn owners(&self) -> Vec<PathBuf> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let ends = name.match_indices(PARTITION_INFIX).filter(|(at, _)| *at > 0);
        ends.map(|(at, _)| self.path.with_file_name(format!("{}{FOLDER_SUFFIX}", &name[..at])))
            .collect()
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.folder().join("lock")
    }

    pub(super) fn store(&self) -> PathBuf {
        self.folder().join("store.json")
    }

    fn prefix(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        format!("{}{PARTITION_INFIX}", name.to_string_lossy())
    }

    /// The cursor file of a duty.
    pub(super) fn cursor(&self, duty: &DutyKey) -> PathBuf {
        if *duty == self.main {
            return self.path.clone();
        }
        let prefix = self.prefix();
        let name = match duty.group == self.main.group {
            true => duty.id.to_string(),
            false => format!("{}+{}", duty.group, duty.id),
        };
        let name = fitting(name, MAX_NAME_BYTES.saturating_sub(prefix.len()));
        self.path.with_file_name(format!("{prefix}{name}"))
    }

    /// Returns the duty of a cursor file by its name; `None` for other files. The inner `None`
    /// means that the name was too long, so the duty must be read from the file.
    pub(super) fn is_cursor(&self, name: &str) -> Option<Option<DutyKey>> {
        if self.path.file_name().is_some_and(|own| own == name) {
            return Some(Some(self.main.clone()));
        }
        let key = name.strip_prefix(&self.prefix())?;
        if key.ends_with(TEMP_SUFFIX) || is_aside(key) {
            return None;
        }
        if key.starts_with('~') {
            return Some(None);
        }
        let (group, id) = match key.split_once('+') {
            Some((group, id)) => (GroupName::unescape(group).ok()?, id),
            None => (self.main.group.clone(), key),
        };
        let duty = DutyKey { group, id: DutyId::unescape(id).ok()? };
        // The store does not read a cursor under another spelling of its name.
        let same = self.cursor(&duty).file_name().is_some_and(|own| own == name);
        same.then_some(Some(duty))
    }

    /// Returns the part of file names that stands for a group.
    pub(super) fn stem(group: &GroupName) -> String {
        fitting(group.to_string(), MAX_NAME_BYTES / 2)
    }

    pub(super) fn group(&self, stem: &str) -> PathBuf {
        self.folder().join(format!("group-{stem}.json"))
    }

    /// Returns the stem of a group's file; false when the file was set aside.
    pub(super) fn is_group(name: &str) -> Option<(&str, bool)> {
        let rest = name.strip_prefix("group-")?;
        match rest.strip_suffix(".json") {
            Some(stem) => Some((stem, true)),
            None if is_aside(rest) => Some((rest.rsplit_once(".json.")?.0, false)),
            None => None,
        }
    }

    pub(super) fn audit(&self, group: &GroupName) -> PathBuf {
        self.folder().join(format!("audit-{}.jsonl", Self::stem(group)))
    }

    pub(super) fn histories(&self) -> PathBuf {
        self.folder().join("history")
    }

    pub(super) fn history(&self, duty: &DutyKey) -> PathBuf {
        self.histories().join(fitting(format!("{}+{}", duty.group, duty.id), MAX_NAME_BYTES))
    }

    /// Returns the path of a checkpoint in the history.
    pub(super) fn generation(&self, duty: &DutyKey, version: Version) -> PathBuf {
        self.history(duty).join(format!("{version}.json"))
    }

    /// Returns the path of a checkpoint that is not in the cursor file yet.
    pub(super) fn pending(&self, duty: &DutyKey, version: Version) -> PathBuf {
        self.history(duty).join(format!("{version}{PENDING_SUFFIX}"))
    }

    pub(super) fn is_pending(name: &str) -> Option<Version> {
        Version::new(name.strip_suffix(PENDING_SUFFIX)?.parse().ok()?).ok()
    }

    pub(super) fn is_generation(name: &str) -> Option<Version> {
        Version::new(name.strip_suffix(".json")?.parse().ok()?).ok()
    }

    /// Path under which a file is written before it is renamed.
    pub(super) fn temp(path: &Path) -> PathBuf {
        beside(path, TEMP_SUFFIX)
    }

    /// Path under which a damaged file is kept.
    pub(super) fn aside(path: &Path, number: u32) -> PathBuf {
        beside(path, &format!("{CORRUPT_SUFFIX}{number}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layout() -> FilePaths {
        FilePaths::new("/d/cursor.json".into(), DutyKey::new("telegram", "bot").unwrap())
    }

    fn name(group: &str, id: &str) -> String {
        let path = layout().cursor(&DutyKey::new(group, id).unwrap());
        path.file_name().unwrap().to_str().unwrap().to_owned()
    }

    #[test]
    fn partitions_are_named_by_their_duty() {
        assert_eq!(name("telegram", "bot"), "cursor.json");
        assert_eq!(name("telegram", "1"), "cursor.json.partition-1");
        assert_eq!(name("gmail", "a/b"), "cursor.json.partition-gmail+a%2Fb");
        assert!(name("telegram", &"x".repeat(500)).starts_with("cursor.json.partition-~"));
        assert!(name("telegram", "a.corrupt-1").starts_with("cursor.json.partition-~"));
    }

    #[test]
    fn what_is_no_cursor_file_is_told_by_its_name() {
        for other in [
            "cursor.json.tenure",
            "cursor.json.tmp",
            "cursor.json.corrupt-1",
            "cursor.json.partition-a.corrupt-1",
            "cursor.json.partition-a.tenure-tmp",
            "cursor.json.partition-%61",
            "cursor.json.partition-",
            "other.json",
        ] {
            assert_eq!(layout().is_cursor(other), None, "{other}");
        }
        assert_eq!(FilePaths::is_group("group-g.json"), Some(("g", true)));
        assert_eq!(FilePaths::is_group("group-g.json.corrupt-2"), Some(("g", false)));
        assert_eq!(FilePaths::is_group("group-g.json.tenure-tmp"), None);
    }

    proptest! {
        #[test]
        fn a_name_leads_back_to_its_duty(group in "\\PC{1,20}", id in "\\PC{1,60}") {
            let duty = DutyKey::new(group, id).unwrap();
            let name = name(duty.group.as_str(), duty.id.as_str());
            prop_assert!(name.len() <= MAX_NAME_BYTES);
            let back = layout().is_cursor(&name);
            prop_assert!(back == Some(None) || back == Some(Some(duty)));
        }
    }
}
