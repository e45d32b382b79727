//! Open tasks in comments must name an issue.

use super::source::{find_words, line_of};
use super::{File, TidyFinding};

/// Concatenated, so that this file does not match itself.
const MARKS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];

pub(crate) fn check(file: &File) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for mark in MARKS {
        for offset in find_words(&file.text, mark) {
            if !has_issue(&file.text[offset + mark.len()..]) {
                let line = line_of(&file.text, offset);
                let instead = format!("write {mark}(#12) with the number of its issue");
                let what = format!("a {mark} without an issue");
                findings.push(TidyFinding::new(&file.path, line, mark, &what, &instead));
            }
        }
    }
    findings
}

fn has_issue(rest: &str) -> bool {
    let number = rest.strip_prefix("(#").and_then(|rest| rest.split_once(')'));
    number.is_some_and(|(digits, _)| {
        !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        check(&File::new("a.md", text.replace("MARK", MARKS[0]))).len()
    }

    #[test]
    fn a_note_needs_an_issue() {
        assert_eq!(count("// MARK later\n"), 1);
        assert_eq!(count("// MARK(me): later\n"), 1);
        assert_eq!(count("// MARK(#): later\n"), 1);
        assert_eq!(count("// MARK(#12): later\n"), 0);
        assert_eq!(count("// MARKS\n"), 0);
    }
}
