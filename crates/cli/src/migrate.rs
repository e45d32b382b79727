//! `tenure migrate`: makes the store or updates its schema.

use serde_json::json;
use tenure_core::Code;
use tenure_duty::process;
use tenure_store::{IfAbsent, StoreUrl};
use tenure_switchboard::storage;

use crate::failure::Failure;
use crate::output::{document, shown};

/// Opening a store updates it; only when there is none it is made.
pub(crate) async fn run(url: &StoreUrl, json: bool) -> Result<String, Failure> {
    let created = match url.open(IfAbsent::Refuse, process::entropy()).await {
        Err(error) if error.code() == Code::Absent => {
            url.open(IfAbsent::Create, process::entropy()).await?;
            true
        }
        opened => {
            opened?;
            false
        }
    };
    // The switchboard keeps its tables beside the store's, where there are tables.
    if url.tables().is_ok() {
        storage::open(url, IfAbsent::Create).await?;
    }
    let store = url.to_string();
    Ok(match (json, created) {
        (true, _) => document(&json!({ "store": store, "created": created })),
        (false, true) => format!("{} is a new store\n", shown(&store)),
        (false, false) => format!("{} is up to date\n", shown(&store)),
    })
}

/// The script, for those who may not run it through us.
pub(crate) fn script(url: &StoreUrl, json: bool) -> Result<String, Failure> {
    let mut script = url.migration_script()?;
    if url.tables().is_ok() {
        script = joined(&script, &storage::script(url)?);
    }
    Ok(match json {
        true => document(&json!({ "store": url.to_string(), "script": script })),
        false => script,
    })
}

/// What comes before the rights that a role needs.
const RIGHTS: &str = "-- For each role that runs Tenure:\n";

/// Two scripts as one: first all that makes tables, then all rights.
fn joined(store: &str, switchboard: &str) -> String {
    let parts =
        [store, switchboard].map(|script| script.split_once(RIGHTS).unwrap_or((script, "")));
    let [(store, rights), (switchboard, more)] = parts;
    let tables =
        format!("{}\n\n-- The switchboard.\n{}\n", store.trim_end(), switchboard.trim_end());
    match rights.is_empty() && more.is_empty() {
        true => tables,
        false => format!("{tables}\n{RIGHTS}{rights}{more}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_come_last() {
        let script = |name: &str| format!("BEGIN; {name}\nCOMMIT;\n\n{RIGHTS}-- GRANT {name};\n");
        let text = joined(&script("a"), &script("b"));
        let expected = "BEGIN; a\nCOMMIT;\n\n-- The switchboard.\nBEGIN; b\nCOMMIT;\n\n\
            -- For each role that runs Tenure:\n-- GRANT a;\n-- GRANT b;\n";
        assert_eq!(text, expected);
        assert_eq!(joined("a\n", "b\n"), "a\n\n-- The switchboard.\nb\n");
    }
}
