//! No file may contain paths of the machine on which it was written.

use std::env;
use std::path::Path;

use super::source::{is_word, line_of};
use super::{File, TidyFinding};

/// Common folders, which reveal nothing about this machine.
const COMMON: &[&str] = &["/", "/home", "/mnt", "/opt", "/srv", "/tmp", "/usr", "/var"];

/// Returns the paths of this checkout and this user.
pub(crate) fn of_this_machine(root: &Path) -> Vec<String> {
    let home = env::var("HOME").ok();
    let places = [Some(root), root.parent(), home.as_deref().map(Path::new)];
    let mut paths: Vec<String> =
        places.into_iter().flatten().map(|path| path.display().to_string()).collect();
    paths.retain(|path| path.starts_with('/') && !COMMON.contains(&path.as_str()));
    paths
}

pub(crate) fn check(file: &File, forbidden: &[String]) -> Vec<TidyFinding> {
    if file.path == "Cargo.lock" {
        return Vec::new();
    }
    forbidden
        .iter()
        .flat_map(|path| file.text.match_indices(path.as_str()))
        .filter(|(offset, path)| {
            // `/desk` is neither in `home/desk` nor in `/desktop`.
            let before = &file.text[..*offset];
            let after = &file.text[offset + path.len()..];
            let continues = |next: char| is_word(next) || next == '-';
            !before.ends_with(|last: char| is_word(last) || "./-}>".contains(last))
                && !after.starts_with(continues)
        })
        .map(|(offset, path)| {
            let line = line_of(&file.text, offset);
            let what = format!("`{path}` is a path of one machine");
            TidyFinding::new(&file.path, line, "machine path", &what, "write a relative path")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        check(&File::new("a.md", text.to_owned()), &["/desk".to_owned()]).len()
    }

    #[test]
    fn a_path_of_this_machine_is_found() {
        assert_eq!(count("see /desk/tenure/a.rs"), 1);
        assert_eq!(count("cd \"/desk\""), 1);
    }

    #[test]
    fn a_path_that_only_looks_like_it_is_not() {
        assert_eq!(count("see home/desk, ./desk, /desktop and /desk-lamp"), 0);
    }

    #[test]
    fn common_folders_are_allowed() {
        let paths = of_this_machine(Path::new("/tmp/checkout"));
        assert!(paths.contains(&"/tmp/checkout".to_owned()));
        assert!(!paths.contains(&"/tmp".to_owned()));
    }
}
