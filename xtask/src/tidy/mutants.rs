//! The feature `mutants` may only be enabled by name, never as part of another feature; and a
//! mutant is asked for in one way, by which the kill table finds it.

use super::source::line_of;
use super::{File, TidyFinding};

const FEATURE: &str = "mutants";

/// Checks manifests and sources.
pub(crate) fn check(file: &File) -> Vec<TidyFinding> {
    match &file.rust {
        Some(rust) if !file.is_test() => unasked(&file.path, &rust.code),
        _ if file.path.ends_with("Cargo.toml") => uses(file),
        _ => Vec::new(),
    }
}

/// Finds mutants that are named without `is_on()`.
fn unasked(path: &str, code: &str) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (at, before) in code.match_indices("Mutant::") {
        let name = code[at + before.len()..].split(|c: char| !c.is_alphanumeric()).next();
        let Some(name) = name.filter(|name| is_variant(name)) else { continue };
        if !code[at..].starts_with(&format!("{before}{name}.is_on()")) {
            let what = format!("{name} is named without asking whether it is on");
            let instead = "write `Mutant::Name.is_on()` in one piece";
            findings.push(TidyFinding::new(path, line_of(code, at), FEATURE, &what, instead));
        }
    }
    findings
}

/// Whether a name is that of a mutant, such as `R2Same`.
fn is_variant(name: &str) -> bool {
    let number = name.strip_prefix(['R', 'S']);
    number.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
}

/// Finds the feature in a manifest outside its own definition: in `default`, another feature or a
/// dependency.
fn uses(file: &File) -> Vec<TidyFinding> {
    let is_use = |line: &str| {
        let line = line.trim_start();
        line.contains(FEATURE) && !line.starts_with('#') && !line.starts_with("mutants = ")
    };
    let uses = (1..).zip(file.text.lines()).filter(|(_, line)| is_use(line));
    let found = |(number, _)| {
        let what = "the feature `mutants` is enabled by something else";
        TidyFinding::new(&file.path, number, FEATURE, what, "enable it only by name")
    };
    uses.map(found).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let file = File::new("crates/a/Cargo.toml", text.to_owned());
        check(&file).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn the_feature_is_defined_and_mutants_are_asked_for() {
        assert!(lines("# mutants\nmutants = [\"core/mutants\"]\n").is_empty());
        assert_eq!(lines("a = 1\ndefault = [\"mutants\"]\n"), [2]);
        assert_eq!(lines("core = { path = \"x\", features = [\"mutants\"] }\n"), [1]);
        assert_eq!(lines("full = [\n    \"core/mutants\",\n]\n"), [2]);
        let code = "a(Mutant::R2Same.is_on());\nb(Mutant::S2Two, Mutant::ALL);\n";
        let source = File::new("crates/a/src/b.rs", code.to_owned());
        assert_eq!(check(&source).iter().map(|found| found.line).collect::<Vec<_>>(), [2]);
        let other = File::new("a.rs", "default = [\"mutants\"]".to_owned());
        assert!(check(&other).is_empty());
    }
}
