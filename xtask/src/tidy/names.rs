//! Names and doc comments: one meaning per type name; constants and comments that name the thing.

use std::collections::BTreeMap;

use super::source::{is_word, line_of};
use super::{File, TidyFinding};

/// Folders whose sources share one set of type names.
const SOURCES: &[&str] = &["bench", "chaos", "crates", "isolation", "sim", "testkit", "xtask"];

/// Constant names that do not describe what they limit or are.
const VAGUE: &[&str] = &[
    "AHEAD",
    "ANSWER",
    "AT_ONCE",
    "ATTEMPTS",
    "BREATH",
    "CHUNK",
    "CONNECT",
    "EVERY",
    "FEW",
    "FIRST",
    "FRESH",
    "GAP",
    "GIVEN_BACK",
    "HANG",
    "KINDS",
    "KNOWN",
    "LARGEST",
    "LAST",
    "LEAST",
    "LIMIT",
    "LONGEST",
    "LONGEST_NAME",
    "LOOK",
    "MAX",
    "MAX_BYTES",
    "MIN",
    "MOMENT",
    "MOST",
    "MOST_BYTES",
    "MOST_STEPS",
    "NAMES",
    "NOTHING",
    "PAGE",
    "PATIENCE",
    "PAUSE",
    "PIECE",
    "REMEMBERED",
    "REST",
    "RETRY",
    "ROOM",
    "ROUND",
    "ROUNDS",
    "SHORTEST",
    "SHOWN",
    "STEP",
    "TAKEN",
    "TRIES",
    "USUAL",
    "WAITING",
    "WHOLE",
];

/// First words of comments that paraphrase instead of naming the thing.
const PARAPHRASES: &[&str] = &[
    "Who",
    "What",
    "Where",
    "How",
    "That",
    "Whoever",
    "Whatever",
    "Whichever",
    "Those",
    "Says",
    "Tells",
];

const SQL: &[&str] = &["SELECT ", "INSERT INTO ", "DELETE FROM ", "CREATE TABLE ", "UPDATE "];

/// Checks the constants, comments and strings of one file.
pub(crate) fn check(file: &File) -> Vec<TidyFinding> {
    if !is_source(file) {
        return Vec::new();
    }
    let mut findings = vague_constants(file);
    findings.extend(paraphrases(file));
    findings.extend(inline_sql(file));
    findings
}

/// Type names that are defined in more than one place.
pub(crate) fn check_types(files: &[File]) -> Vec<TidyFinding> {
    let mut places: BTreeMap<&str, Vec<(&File, usize)>> = BTreeMap::new();
    for file in files.iter().filter(|file| is_source(file)) {
        for (line, name) in types(file) {
            let places = places.entry(name).or_default();
            // Features may choose between two definitions in one file.
            if places.last().is_none_or(|(last, _)| last.path != file.path) {
                places.push((file, line));
            }
        }
    }
    let twice = places.into_iter().filter(|(_, places)| places.len() > 1);
    let findings = twice.flat_map(|(name, places)| {
        let first = format!("the type name `{name}` is also defined in {}", places[0].0.path);
        places.into_iter().skip(1).map(move |(file, line)| {
            let instead = "name what is specific here, or merge the two";
            TidyFinding::new(&file.path, line, name, &first, instead)
        })
    });
    findings.collect()
}

/// Whether the file is compiled into the product or a developer's program, not only into tests.
fn is_source(file: &File) -> bool {
    let mut folders = file.path.split('/');
    let known = folders.next().is_some_and(|first| SOURCES.contains(&first));
    known && file.path.contains("/src/") && !file.is_test() && file.rust.is_some()
}

/// Lines of code outside tests, counted from one.
fn code_lines(file: &File) -> impl Iterator<Item = (usize, &str)> {
    file.rust.iter().flat_map(|rust| {
        let lines = rust.code.lines().enumerate().map(|(index, line)| (index + 1, line));
        lines.filter(|(line, _)| !rust.is_test(*line))
    })
}

/// A line without its visibility.
fn item(line: &str) -> &str {
    let Some(rest) = line.strip_prefix("pub") else { return line };
    let scope = rest.starts_with('(').then(|| rest.split_once(')')).flatten();
    scope.map_or(rest, |(_, rest)| rest).trim_start()
}

fn name_after<'a>(line: &'a str, keywords: &[&str]) -> Option<&'a str> {
    let (keyword, rest) = line.split_once(' ')?;
    let end = rest.find(|character| !is_word(character)).unwrap_or(rest.len());
    keywords.contains(&keyword).then_some(&rest[..end])
}

/// Returns the types at the top level of a file, without those of functions and implementations.
fn types(file: &File) -> impl Iterator<Item = (usize, &str)> {
    let keywords = ["struct", "enum", "trait", "type", "union"];
    code_lines(file)
        .filter_map(move |(number, line)| Some((number, name_after(item(line), &keywords)?)))
}

fn vague_constants(file: &File) -> Vec<TidyFinding> {
    let constants = code_lines(file).filter_map(|(number, line)| {
        Some((number, name_after(item(line.trim_start()), &["const", "static"])?))
    });
    let vague = constants.filter(|(_, name)| VAGUE.contains(name));
    let finding = |(line, name): (usize, &str)| {
        let what = format!("the constant `{name}` does not say what it is");
        let instead = "name what it bounds, as in MAX_BATCH_EVENTS or CONNECT_TIMEOUT";
        TidyFinding::new(&file.path, line, name, &what, instead)
    };
    vague.map(finding).collect()
}

/// Comments whose first line begins with a word of [`PARAPHRASES`].
fn paraphrases(file: &File) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    let mut is_inside = false;
    for (index, line) in file.text.lines().enumerate() {
        let comment = ["///", "//!"].iter().find_map(|mark| line.trim_start().strip_prefix(mark));
        let text = comment.map(str::trim);
        let is_test = file.rust.as_ref().is_some_and(|rust| rust.is_test(index + 1));
        let first = text.and_then(|text| text.split(|it: char| !it.is_alphanumeric()).next());
        if let Some(word) =
            first.filter(|word| !is_inside && !is_test && PARAPHRASES.contains(word))
        {
            let what = format!("the comment begins with `{word}`");
            let instead = "begin with the thing (a noun) or with what a function does (a verb)";
            findings.push(TidyFinding::new(&file.path, index + 1, "comment", &what, instead));
        }
        // An empty line of a comment begins a new paragraph.
        is_inside = text.is_some_and(|text| !text.is_empty());
    }
    findings
}

/// Finds SQL in code. It belongs in files, where editors and formatters support it.
fn inline_sql(file: &File) -> Vec<TidyFinding> {
    let Some(rust) = file.rust.as_ref().filter(|_| file.is_product()) else { return Vec::new() };
    // Quotes open and close alternately.
    let starts = rust.code.match_indices('"').step_by(2).filter_map(|(offset, _)| {
        let text = rust.strings.get(offset + 1..)?;
        let text = text.trim_start_matches(|it: char| it.is_whitespace() || it == '\\');
        let is_sql = SQL.iter().any(|keyword| text.starts_with(keyword))
            && (!text.starts_with("UPDATE ") || text.split_whitespace().nth(2) == Some("SET"));
        is_sql.then(|| line_of(&rust.code, offset))
    });
    let mut lines: Vec<usize> = starts.filter(|line| !rust.is_test(*line)).collect();
    lines.dedup();
    let finding = |line| {
        let what = "SQL in a Rust string";
        TidyFinding::new(&file.path, line, "sql", what, "put it into a file and include it")
    };
    lines.into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File::new(path, text.to_owned())
    }

    fn found(path: &str, text: &str) -> Vec<String> {
        let findings = check(&file(path, text)).into_iter();
        findings.map(|finding| format!("{}:{}", finding.line, finding.subject)).collect()
    }

    #[test]
    fn a_type_name_means_one_thing() {
        let files = [
            file("crates/core/src/a.rs", "pub struct Line;\nimpl Line {}"),
            file("crates/cli/src/b.rs", "//! Text.\npub(crate) enum Line {}"),
            file("crates/cli/src/c.rs", "fn f() {\n    struct Line;\n}\n"),
            file("crates/cli/src/d.rs", "#[cfg(test)]\nmod tests {\nstruct Line;\n}"),
            file("crates/cli/tests/it/main.rs", "struct Line;"),
        ];
        let findings = check_types(&files);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!((findings[0].path.as_str(), findings[0].line), ("crates/cli/src/b.rs", 2));
        assert!(findings[0].what.contains("crates/core/src/a.rs"), "{findings:?}");
    }

    #[test]
    fn a_constant_says_what_it_is() {
        let path = "crates/core/src/a.rs";
        assert_eq!(found(path, "pub(crate) const MOST: u8 = 1;"), ["1:MOST"]);
        assert_eq!(found(path, "impl A {\n    const ROOM: u8 = 1;\n}"), ["2:ROOM"]);
        assert!(found(path, "const MAX_BATCH_EVENTS: u8 = 1;").is_empty());
        assert!(found("crates/core/tests/a.rs", "const MOST: u8 = 1;").is_empty());
    }

    #[test]
    fn a_comment_names_the_thing() {
        let path = "xtask/src/a.rs";
        assert_eq!(found(path, "//! How it is.\n"), ["1:comment"]);
        assert_eq!(found(path, "/// What was typed.\nstruct A;"), ["1:comment"]);
        assert_eq!(found(path, "/// A thing.\n///\n/// Who has it.\n"), ["3:comment"]);
        assert!(found(path, "/// Returns the thing.\n/// What is else.\nfn f() {}").is_empty());
        assert!(found(path, "// How it works inside.\n").is_empty());
        assert!(found(path, "/// However it is.\n").is_empty());
    }

    #[test]
    fn sql_is_in_files() {
        let path = "crates/store/src/a.rs";
        assert_eq!(found(path, "query(\"SELECT 1\")"), ["1:sql"]);
        assert_eq!(found(path, "let a =\n    \"UPDATE hold SET epoch = 1\";"), ["2:sql"]);
        assert_eq!(found(path, "f(\"\\\n  SELECT 1\", \"DELETE FROM a\")"), ["1:sql", "2:sql"]);
        assert!(found(path, "f(\"UPDATE the page\", \"selected\") // \"SELECT 1\"").is_empty());
        assert!(found("bench/src/a.rs", "query(\"SELECT 1\")").is_empty());
    }
}
