//! Line length, white space and the end of a file.

use super::{File, TidyFinding};

const COLUMNS: usize = 100;

/// Extensions of files with the line length of code.
const NARROW: &[&str] = &["rs", "sql", "lua", "toml"];

pub(crate) fn check(file: &File) -> Vec<TidyFinding> {
    if file.path.ends_with("Cargo.lock") || file.text.is_empty() {
        return Vec::new();
    }
    let mut findings: Vec<TidyFinding> = file
        .text
        .split('\n')
        .enumerate()
        .flat_map(|(index, line)| check_line(file, index + 1, line))
        .collect();
    if !file.text.ends_with('\n') || file.text.ends_with("\n\n") {
        let last = file.text.lines().count();
        let what = "the file does not end in exactly one newline";
        findings.push(TidyFinding::new(&file.path, last, "end of file", what, "make it one"));
    }
    findings
}

fn check_line(file: &File, number: usize, line: &str) -> Vec<TidyFinding> {
    let finding =
        |subject, what: &str, instead| TidyFinding::new(&file.path, number, subject, what, instead);
    let mut findings = Vec::new();
    let columns = line.chars().count();
    if NARROW.contains(&file.extension()) && columns > COLUMNS {
        let what = format!("the line has {columns} columns");
        findings.push(finding("columns", &what, "break it at 100"));
    }
    if line.ends_with(char::is_whitespace) {
        findings.push(finding("trailing space", "the line has trailing white space", "remove it"));
    }
    if file.extension() == "rs" && line.contains('\t') {
        findings.push(finding("tab", "the line has a tab", "use spaces, or \\t in a string"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subjects(path: &str, text: &str) -> Vec<String> {
        let findings = check(&File::new(path, text.to_owned()));
        findings.into_iter().map(|finding| finding.subject).collect()
    }

    #[test]
    fn columns_count_characters_in_code_only() {
        let wide = format!("{}\n", "é".repeat(101));
        assert_eq!(subjects("a.rs", &wide), ["columns"]);
        assert_eq!(subjects("a.sql", &wide), ["columns"]);
        assert!(subjects("a.md", &wide).is_empty());
        assert!(subjects("a.rs", &format!("{}\n", "é".repeat(100))).is_empty());
    }

    #[test]
    fn white_space_is_found() {
        assert_eq!(subjects("a.md", "a \n"), ["trailing space"]);
        assert_eq!(subjects("a.rs", "\ta\n"), ["tab"]);
        assert!(subjects("Makefile", "\ta\n").is_empty());
    }

    #[test]
    fn a_file_ends_in_one_newline() {
        assert_eq!(subjects("a.md", "a"), ["end of file"]);
        assert_eq!(subjects("a.md", "a\n\n"), ["end of file"]);
        assert!(subjects("a.md", "a\n").is_empty());
        assert!(subjects("a.md", "").is_empty());
    }
}
