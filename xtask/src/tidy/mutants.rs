//! The feature `mutants` may only be enabled by name, never as part of another feature.

use super::{File, TidyFinding};

const FEATURE: &str = "mutants";

/// Checks that a manifest mentions the feature only in its own definition: not in `default`,
/// another feature or a dependency.
pub(crate) fn check(file: &File) -> Vec<TidyFinding> {
    if !file.path.ends_with("Cargo.toml") {
        return Vec::new();
    }
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
    fn the_feature_is_defined_and_not_taken_along() {
        assert!(lines("# mutants\nmutants = [\"core/mutants\"]\n").is_empty());
        assert_eq!(lines("a = 1\ndefault = [\"mutants\"]\n"), [2]);
        assert_eq!(lines("core = { path = \"x\", features = [\"mutants\"] }\n"), [1]);
        assert_eq!(lines("full = [\n    \"core/mutants\",\n]\n"), [2]);
        let other = File::new("a.rs", "default = [\"mutants\"]".to_owned());
        assert!(check(&other).is_empty());
    }
}
