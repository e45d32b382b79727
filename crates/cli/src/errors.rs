//! `tenure errors`: the pages of `docs/errors`, embedded in the binary.

use serde_json::{Value, json};
use tenure_core::Code;

use crate::args::{Global, quoted};
use crate::failure::Failure;
use crate::hints::hint;

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
    "ST029" "ST030" "ST031" "ST032" "ST033"
    "DT001" "DT002" "DT003" "DT004" "DT005" "DT006" "DT007" "DT008" "DT009"
    "DT010" "DT011" "DT012" "DT013" "DT014" "DT015" "DT016" "DT017"
    "DT018" "DT019" "DT020"
    "BK001" "BK002" "BK003" "BK004"
    "SW001" "SW002" "SW003" "SW004" "SW005" "SW006" "SW007" "SW008"
    "SW009" "SW010"
    "CF001" "CF002"
}

/// Returns the page of a code; a test checks that each has one.
fn page(code: Code) -> &'static str {
    let found = PAGES.iter().find(|(name, _)| *name == code.as_str());
    found.map_or("", |(_, page)| page)
}

/// Returns the page of a code, or the list of all.
pub(crate) fn run(code: Option<&str>, global: &Global) -> Result<String, Failure> {
    let Some(text) = code else {
        let entries: Vec<Value> = Code::ALL.iter().map(|code| entry(*code)).collect();
        let line = |code: &Code| format!("{code}  {}\n", code.sentence());
        let list = || Code::ALL.iter().map(line).collect();
        return Ok(global.show(&json!({ "errors": entries }), list));
    };
    let code = Code::ALL.iter().copied().find(|code| code.as_str().eq_ignore_ascii_case(text));
    let code = code.ok_or_else(|| {
        let text = quoted(text);
        Failure::Usage(format!("there is no error code {text}; `tenure errors` lists all"))
    })?;
    let mut value = entry(code);
    value["page"] = page(code).into();
    Ok(global.show(&value, || page(code).to_owned()))
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
