//! Documents: one title each, and existing targets of links and of pages that code names.

use std::path::{Component, Path, PathBuf};

use super::{File, TidyFinding};

pub(crate) fn check(file: &File, exists: impl Fn(&Path) -> bool) -> Vec<TidyFinding> {
    match file.extension() {
        "md" => check_document(file, exists),
        "rs" | "sql" | "lua" => check_mentions(file, exists),
        _ => Vec::new(),
    }
}

/// Checks the pages below `docs` that code mentions, as in `Why:` comments.
fn check_mentions(file: &File, exists: impl Fn(&Path) -> bool) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for (offset, _) in line.match_indices("docs/") {
            let rest = &line[offset..];
            let is_path = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
            let path = rest.split(|c| !is_path(c)).next().unwrap_or(rest).trim_end_matches('.');
            if path.ends_with(".md") && !exists(Path::new(path)) {
                let what = format!("there is no page {path}");
                let instead = "name a file of the repository";
                findings.push(TidyFinding::new(&file.path, index + 1, "link", &what, instead));
            }
        }
    }
    findings
}

fn check_document(file: &File, exists: impl Fn(&Path) -> bool) -> Vec<TidyFinding> {
    let lines = prose(&file.text);
    let mut findings = Vec::new();
    let titles: Vec<usize> = lines
        .iter()
        .filter(|(_, line)| line.starts_with("# "))
        .map(|(number, _)| *number)
        .collect();
    if titles.len() != 1 {
        let what = format!("the document has {} titles", titles.len());
        let line = titles.get(1).copied().unwrap_or(1);
        findings.push(TidyFinding::new(&file.path, line, "title", &what, "give it one `# Title`"));
    }
    let folder = Path::new(&file.path).parent().unwrap_or(Path::new(""));
    for (number, line) in &lines {
        for target in link_targets(line) {
            let found = resolve(folder, target).is_some_and(|path| exists(&path));
            if !found {
                let what = format!("the link to {target} leads nowhere");
                let instead = "link to a file of the repository, relative to this one";
                findings.push(TidyFinding::new(&file.path, *number, "link", &what, instead));
            }
        }
    }
    findings
}

/// Returns the lines outside code blocks, with their numbers, and without inline code.
fn prose(text: &str) -> Vec<(usize, String)> {
    let mut fence: Option<&str> = None;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mark = ["```", "~~~"].into_iter().find(|mark| line.trim_start().starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, None) => lines.push((index + 1, without_code(line))),
            (Some(_), _) => {}
        }
    }
    lines
}

/// Removes inline code: every second part between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// Returns the files that a line links to: `[text](file#part "title")` and `[name]: file`.
fn link_targets(line: &str) -> Vec<&str> {
    let inline = line.match_indices("](").filter_map(|(offset, mark)| {
        line[offset + mark.len()..].split_once(')').map(|(target, _)| target)
    });
    let definition = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    inline
        .chain(definition.map(|(_, target)| target))
        .filter_map(|target| target.split_whitespace().next())
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
        .filter_map(|target| target.split('#').next())
        .filter(|target| !target.is_empty())
        .collect()
}

/// Returns the path of `target` in the repository; `None` if it is outside.
fn resolve(folder: &Path, target: &str) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for part in folder.join(target).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir => path.pop().then_some(())?,
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subjects(text: &str) -> Vec<String> {
        let file = File::new("pages/a.md", text.to_owned());
        let findings = check(&file, |path| path == Path::new("pages/b.md"));
        findings.into_iter().map(|finding| finding.subject).collect()
    }

    #[test]
    fn a_document_has_one_title() {
        assert_eq!(subjects("text\n"), ["title"]);
        assert_eq!(subjects("# A\n# B\n"), ["title"]);
        assert!(subjects("# A\n## B\n```sh\n# not a title\n```\n").is_empty());
    }

    #[test]
    fn links_lead_to_files() {
        assert!(subjects("# A\n[b](b.md#part \"title\") [b](../pages/b.md)\n").is_empty());
        assert!(subjects("# A\n[web](https://example.org/x) [here](#a) `[x](y)`\n").is_empty());
        assert_eq!(subjects("# A\n[c](c.md)\n"), ["link"]);
        assert_eq!(subjects("# A\n[b]: c.md\n"), ["link"]);
        assert_eq!(subjects("# A\n[b](../../pages/b.md) [b](/pages/b.md)\n"), ["link", "link"]);
    }

    #[test]
    fn pages_that_code_names_exist() {
        let code = |page: &str| File::new("a.rs", format!("// Why: docs/{page}, and more.\n"));
        let exists = |path: &Path| path == Path::new("docs").join("b.md");
        assert!(check(&code("b.md"), exists).is_empty());
        assert_eq!(check(&code("c.md"), exists).len(), 1);
    }
}
