//! Limits on the length of functions and files.

use super::source::{Rust, body_of, closing, find_words, is_word, line_of};
use super::{File, TidyFinding};

const FUNCTION_LINES: usize = 70;
const FILE_LINES: usize = 500;

pub(crate) fn check(file: &File) -> Vec<TidyFinding> {
    let Some(rust) = &file.rust else {
        return Vec::new();
    };
    let mut findings = long_functions(file, rust);
    let lines = (1..=file.text.lines().count()).filter(|line| !rust.is_test(*line)).count();
    if lines > FILE_LINES {
        let what = format!("the file has {lines} lines without its tests");
        findings.push(TidyFinding::new(&file.path, 1, "file length", &what, "split it below 500"));
    }
    findings
}

fn long_functions(file: &File, rust: &Rust) -> Vec<TidyFinding> {
    let code = rust.code.as_str();
    let mut findings = Vec::new();
    for offset in find_words(code, "fn") {
        let after = &code[offset + "fn".len()..];
        let name: String = after.trim_start().chars().take_while(|c| is_word(*c)).collect();
        // A type such as `fn(u8)` has no name, and a required trait method has no body.
        let Some(open) = body_of(code, offset).filter(|_| !name.is_empty()) else {
            continue;
        };
        let first = line_of(code, offset);
        let lines = line_of(code, closing(code, open) - 1) - first + 1;
        if lines > FUNCTION_LINES {
            let what = format!("the function `{name}` has {lines} lines");
            let instead = "split it at 70, or name it in the exceptions with a reason";
            findings.push(TidyFinding::new(&file.path, first, &name, &what, instead));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(text: &str) -> Vec<TidyFinding> {
        check(&File::new("a.rs", text.to_owned()))
    }

    fn function(lines: usize) -> String {
        format!("fn f(a: [u8; 2]) {{\n{}}}\n", "    \"}\"; // }\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_may_have_70_lines() {
        assert!(check_text(&function(70)).is_empty());
        let findings = check_text(&function(71));
        assert_eq!(findings[0].subject, "f");
        assert_eq!(findings[0].what, "the function `f` has 71 lines");
    }

    #[test]
    fn a_function_without_a_body_is_not_measured() {
        let text = format!("trait T {{ fn f(); }}\ntype F = fn(u8);\n{}", "// x\n".repeat(80));
        assert!(check_text(&text).is_empty());
    }

    #[test]
    fn a_file_may_have_500_lines_beside_tests() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "// x\n".repeat(400));
        assert!(check_text(&format!("{}{tests}", "// x\n".repeat(500))).is_empty());
        let findings = check_text(&format!("{}{tests}", "// x\n".repeat(501)));
        assert_eq!(findings[0].subject, "file length");
    }
}
