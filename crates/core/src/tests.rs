//! Checks shared by several modules.

/// Compares a part of a reference page with the code. `TENURE_REFRESH=1` writes it into the page
/// instead.
pub(crate) fn check_page(name: &str, marker: &str, expected: &str) {
    let page = format!("{}/../../docs/reference/{name}.md", env!("CARGO_MANIFEST_DIR"));
    let (begin, end) = (format!("<!-- {marker} -->\n"), format!("<!-- /{marker} -->\n"));
    let text = std::fs::read_to_string(&page).unwrap();
    let (head, rest) = text.split_once(&begin).expect("the beginning of the table");
    let (there, tail) = rest.split_once(&end).expect("the end of the table");
    if std::env::var_os("TENURE_REFRESH").is_some() {
        std::fs::write(&page, format!("{head}{begin}{expected}{end}{tail}")).unwrap();
        return;
    }
    let differs = there.lines().zip(expected.lines()).find(|(there, here)| there != here);
    assert!(there == expected, "{page}, {differs:#?}; it should be:\n{expected}");
}
