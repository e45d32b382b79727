//! README.md and ARCHITECTURE.md: short, and every path and function that they name exists.

use super::source::find_words;
use super::{File, TidyFinding};

const README: &str = "README.md";
const ARCHITECTURE: &str = "ARCHITECTURE.md";
const MAX_README_WORDS: usize = 600;
const MAX_README_COLUMNS: usize = 120;
const MAX_ARCHITECTURE_WORDS: usize = 1_500;

/// Keywords before the name of an item that the map may point to.
const ITEMS: &[&str] =
    &["fn", "struct", "enum", "trait", "const", "static", "type", "mod", "macro_rules!"];

/// Checks both pages against the files of the repository.
pub(crate) fn check(files: &[File], exists: impl Fn(&str) -> bool) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for page in files {
        match page.path.as_str() {
            README => {
                findings.extend(too_long(page, MAX_README_WORDS));
                findings.extend(too_wide(page));
            }
            ARCHITECTURE => {
                findings.extend(too_long(page, MAX_ARCHITECTURE_WORDS));
                findings.extend(dangling(page, files, &exists));
            }
            _ => {}
        }
    }
    findings
}

/// Counts the words, without the tables that a check generates from Cargo.
fn words(text: &str) -> usize {
    let mut is_generated = false;
    let counted = text.lines().filter(|line| {
        let is_mark = line.starts_with("<!-- ");
        is_generated = if is_mark { !line.starts_with("<!-- /") } else { is_generated };
        !is_mark && !is_generated
    });
    counted
        .flat_map(str::split_whitespace)
        .filter(|word| word.contains(char::is_alphanumeric))
        .count()
}

fn too_long(page: &File, most: usize) -> Option<TidyFinding> {
    let words = words(&page.text);
    let what = format!("the page has {words} words");
    let instead = format!("shorten it to {most}; details belong in docs/");
    (words > most).then(|| TidyFinding::new(&page.path, 1, "words", &what, &instead))
}

fn too_wide(page: &File) -> Vec<TidyFinding> {
    let lines = page.text.lines().enumerate();
    let wide = lines.filter(|(_, line)| line.chars().count() > MAX_README_COLUMNS);
    let finding = |(index, line): (usize, &str)| {
        let what = format!("the line has {} columns", line.chars().count());
        TidyFinding::new(&page.path, index + 1, "columns", &what, "break it at 120")
    };
    wide.map(finding).collect()
}

/// Finds names in backquotes, `path/file.rs` or `path/file.rs::item`, that do not exist.
fn dangling(page: &File, files: &[File], exists: &impl Fn(&str) -> bool) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (index, line) in page.text.lines().enumerate() {
        let quoted = line.split('`').skip(1).step_by(2).filter(|name| is_path(name));
        for name in quoted {
            let (path, item) =
                name.split_once("::").map_or((name, None), |(path, item)| (path, Some(item)));
            let found = match item {
                None => exists(path.trim_end_matches('/')),
                Some(item) => {
                    let file = files.iter().find(|file| file.path == path);
                    file.is_some_and(|file| defines(file, item))
                }
            };
            if !found {
                let what = format!("`{name}` does not exist");
                let instead = "name a file of the repository, and an item in it";
                findings.push(TidyFinding::new(&page.path, index + 1, "map", &what, instead));
            }
        }
    }
    findings
}

/// Whether a name is a path of this repository, and not a command, a URL or a pattern.
fn is_path(name: &str) -> bool {
    let is_plain = !name.contains([' ', '*', '<', '{', '$']) && !name.contains("://");
    is_plain
        && (name.contains(".rs") || (name.contains('/') && name.starts_with(char::is_lowercase)))
        && !name.starts_with("target/")
}

/// Whether a file defines an item, `name` or `Type::name`.
pub(super) fn defines(file: &File, item: &str) -> bool {
    let name = item.rsplit("::").next().unwrap_or(item).trim_end_matches("()");
    let Some(rust) = &file.rust else { return file.text.contains(name) };
    let is_defined = |keyword: &&str| {
        let definition = format!("{keyword} {name}");
        find_words(&rust.code, &definition).next().is_some()
    };
    ITEMS.iter().any(is_defined)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subjects(path: &str, text: &str) -> Vec<String> {
        let files = [
            File::new(path, text.to_owned()),
            File::new("crates/a/src/b.rs", "impl A {\n    pub async fn work() {}\n}\n".to_owned()),
        ];
        let exists = |path: &str| path == "crates/a/src/b.rs" || path == "docs";
        let findings = check(&files, exists).into_iter();
        findings.map(|finding| format!("{}:{}", finding.line, finding.subject)).collect()
    }

    #[test]
    fn pages_are_short() {
        assert!(
            subjects(README, &"word ".repeat(600).replace("word word", "word\nword")).is_empty()
        );
        let long = "word\n".repeat(601);
        assert_eq!(subjects(README, &long), ["1:words"]);
        assert!(subjects(ARCHITECTURE, &long).is_empty());
        assert_eq!(subjects(ARCHITECTURE, &"word\n".repeat(1_501)), ["1:words"]);
        let generated =
            format!("<!-- crate-graph -->\n{}<!-- /crate-graph -->\n", "word\n".repeat(2_000));
        assert!(subjects(ARCHITECTURE, &generated).is_empty());
        assert_eq!(subjects(README, &format!("a\n{}\n", "b".repeat(121))), ["2:columns"]);
    }

    #[test]
    fn the_map_leads_to_files_and_items() {
        let found = |text| subjects(ARCHITECTURE, text);
        assert!(
            found("`crates/a/src/b.rs`, `crates/a/src/b.rs::work`, `docs/`, `a b/c`").is_empty()
        );
        assert!(found("`crates/a/src/b.rs::A::work()`").is_empty());
        assert_eq!(found("x\n`crates/a/src/c.rs`"), ["2:map"]);
        assert_eq!(found("`crates/a/src/b.rs::wor`"), ["1:map"]);
        assert_eq!(found("`crates/none/`"), ["1:map"]);
    }
}
