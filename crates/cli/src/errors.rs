//! `tenure errors`: the pages of `docs/errors`, carried along.

use serde_json::{Value, json};
use tenure_core::Code;

use crate::hints::hint;
use crate::output::document;

macro_rules! pages {
    ($($code:literal)*) => {
        const PAGES: &[(&str, &str)] =
            &[$(($code, include_str!(concat!("../../../docs/errors/", $code, ".md"))),)*];
    };
}

pages! {
    "ST001" "ST002" "ST003" "ST004" "ST005" "ST006" "ST007" "ST008" "ST009" "ST010"
    "ST011" "ST012" "ST013" "ST014" "ST015" "ST016" "ST017" "ST018" "ST019" "ST020"
    "ST021" "ST022" "ST023" "ST024" "ST025" "ST026" "ST027" "ST028"
    "ST029" "ST030" "ST031"
    "DT001" "DT002" "DT003" "DT004" "DT005" "DT006" "DT007" "DT008" "DT009"
    "DT010" "DT011" "DT012" "DT013" "DT014" "DT015" "DT016" "DT017"
    "BK001" "BK002" "BK003" "BK004"
    "SW001" "SW002" "SW003" "SW004" "SW005" "SW006" "SW007" "SW008"
    "SW009" "SW010"
}

/// A test sees to it that every code has a page.
fn page(code: Code) -> &'static str {
    let found = PAGES.iter().find(|(name, _)| *name == code.as_str());
    found.map_or("", |(_, page)| page)
}

/// The page of a code, or the list of all.
pub(crate) fn text(code: Option<Code>, json: bool) -> String {
    match (code, json) {
        (Some(code), false) => page(code).to_owned(),
        (Some(code), true) => {
            let mut value = entry(code);
            value["page"] = page(code).into();
            document(&value)
        }
        (None, false) => {
            let line = |code: &Code| format!("{code}  {}\n", code.sentence());
            Code::ALL.iter().map(line).collect()
        }
        (None, true) => {
            let entries: Vec<Value> = Code::ALL.iter().map(|code| entry(*code)).collect();
            document(&json!({ "errors": entries }))
        }
    }
}

fn entry(code: Code) -> Value {
    json!({ "code": code.as_str(), "sentence": code.sentence(), "hint": hint(code) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_page_and_every_page_a_code() {
        let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        let pages: Vec<&str> = PAGES.iter().map(|(code, _)| *code).collect();
        assert_eq!(pages, codes);
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
        let mut files: Vec<String> = files.map(|name| name.into_string().unwrap()).collect();
        files.sort();
        let mut expected: Vec<String> = codes.iter().map(|code| format!("{code}.md")).collect();
        expected.sort();
        assert_eq!(files, expected);
    }

    #[test]
    fn a_page_and_the_index_have_the_sentence() {
        let index = include_str!("../../../docs/reference/README.md");
        for code in Code::ALL {
            let title = format!("# {code}: {}\n", code.sentence());
            assert!(page(*code).starts_with(&title), "{title}");
            let entry = format!("- [{code}](../errors/{code}.md): {}\n", code.sentence());
            assert!(index.contains(&entry), "{entry}");
        }
    }
}
