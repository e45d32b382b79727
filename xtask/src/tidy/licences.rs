//! Every package must have a licence that deny.toml allows.

use std::collections::BTreeSet;

use super::TidyFinding;
use super::metadata::Metadata;

/// File with the allowed licences.
pub(crate) const POLICY: &str = "deny.toml";

pub(crate) fn check(metadata: &Metadata, policy: Option<&str>) -> Vec<TidyFinding> {
    let Some(allowed) = policy.and_then(allowed) else {
        let what = "there is no list of allowed licences";
        return vec![finding(what, "write `allow = [\"Apache-2.0\"]` under `[licenses]`")];
    };
    let mut findings = Vec::new();
    for package in &metadata.packages {
        let name = &package.name;
        let Some(licence) = &package.licence else {
            findings.push(finding(&format!("{name} names no licence"), "use another package"));
            continue;
        };
        if !Expression::new(licence).satisfied_by(&allowed) {
            let what = format!("{name} is under {licence}");
            findings.push(finding(&what, "use another package, or allow its licence"));
        }
    }
    findings
}

fn finding(what: &str, instead: &str) -> TidyFinding {
    TidyFinding::new(POLICY, 1, "licence", what, instead)
}

/// Returns the strings of `allow` under `[licenses]`, the only part of the file that is read.
fn allowed(policy: &str) -> Option<BTreeSet<String>> {
    let without_comments: String = policy
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default())
        .flat_map(|line| [line.trim(), "\n"])
        .collect();
    let (_, section) = without_comments.split_once("[licenses]\n")?;
    let section = section.split("\n[").next()?;
    let (_, list) = section.split_once("allow = [")?;
    let (list, _) = list.split_once(']')?;
    Some(list.split('"').skip(1).step_by(2).map(str::to_owned).collect())
}

/// Parser of SPDX expressions: `OR` binds weaker than `AND`, and `WITH` belongs to its licence.
struct Expression {
    words: Vec<String>,
    at: usize,
}

impl Expression {
    fn new(text: &str) -> Self {
        // Older packages write `OR` as a slash.
        let spaced = text.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
        Self { words: spaced.split_whitespace().map(str::to_owned).collect(), at: 0 }
    }

    fn satisfied_by(mut self, allowed: &BTreeSet<String>) -> bool {
        let satisfied = self.any(allowed);
        satisfied && self.at == self.words.len()
    }

    fn any(&mut self, allowed: &BTreeSet<String>) -> bool {
        let mut satisfied = self.all(allowed);
        while self.take("OR") {
            // Evaluated first: the rest of the expression must be consumed in any case.
            satisfied = self.all(allowed) || satisfied;
        }
        satisfied
    }

    fn all(&mut self, allowed: &BTreeSet<String>) -> bool {
        let mut satisfied = self.one(allowed);
        while self.take("AND") {
            satisfied = self.one(allowed) && satisfied;
        }
        satisfied
    }

    fn one(&mut self, allowed: &BTreeSet<String>) -> bool {
        if self.take("(") {
            let satisfied = self.any(allowed);
            return self.take(")") && satisfied;
        }
        let mut licence = self.word();
        if self.take("WITH") {
            licence = format!("{licence} WITH {}", self.word());
        }
        allowed.contains(&licence)
    }

    fn word(&mut self) -> String {
        let word = self.words.get(self.at).cloned().unwrap_or_default();
        self.at += 1;
        word
    }

    fn take(&mut self, word: &str) -> bool {
        let is_next = self.words.get(self.at).is_some_and(|next| next == word);
        self.at += usize::from(is_next);
        is_next
    }
}

#[cfg(test)]
mod tests {
    use super::super::metadata::tests::SAMPLE;
    use super::*;

    const SAMPLE_POLICY: &str = "[bans]\nallow = [\"x\"]\n[licenses]\n# why\nallow = [\n  \
        \"MIT\", # short\n  \"BSD WITH fun\",\n]\n[sources]\nallow = [\"y\"]\n";

    #[test]
    fn the_list_is_read_from_its_section() {
        assert_eq!(Vec::from_iter(allowed(SAMPLE_POLICY).unwrap()), ["BSD WITH fun", "MIT"]);
        assert_eq!(allowed("[bans]\nallow = [\"MIT\"]\n"), None);
    }

    #[test]
    fn expressions_are_judged() {
        let allowed = allowed(SAMPLE_POLICY).unwrap();
        let check = |text| Expression::new(text).satisfied_by(&allowed);
        for good in ["MIT", "GPL OR MIT", "MIT/GPL", "(GPL OR MIT) AND MIT", "BSD WITH fun"] {
            assert!(check(good), "{good}");
        }
        for bad in ["", "GPL", "GPL AND MIT", "BSD", "MIT AND (GPL OR BSD)", "MIT MIT", "(MIT"] {
            assert!(!check(bad), "{bad}");
        }
    }

    #[test]
    fn each_package_is_judged() {
        let check = |sample: &str| check(&Metadata::parse(sample).unwrap(), Some(SAMPLE_POLICY));
        assert!(check(SAMPLE).is_empty());
        let strict = SAMPLE.replace("MIT OR GPL-3.0", "GPL-3.0");
        assert_eq!(check(&strict)[0].what, "log is under GPL-3.0");
        let silent = SAMPLE.replace("\"MIT OR GPL-3.0\"", "null");
        assert_eq!(check(&silent)[0].what, "log names no licence");
    }

    #[test]
    fn the_list_is_needed() {
        let metadata = Metadata::parse(SAMPLE).unwrap();
        assert_eq!(check(&metadata, None).len(), 1);
    }
}
