//! `tenure migrate`: creates a store or updates its schema.

use serde_json::json;
use tenure_core::Code;
use tenure_duty::process;
use tenure_store::{IfAbsent, StoreUrl};
use tenure_switchboard::storage;

use crate::failure::Failure;
use crate::output::{document, shown, to_stderr};

/// Opens the store, which updates it, or creates it.
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
        match storage::open(url, IfAbsent::Create).await {
            // Not every role that runs Tenure runs the switchboard.
            Err(error) if error.code() == Code::Denied => {
                to_stderr("this role has no rights on the tables of the switchboard");
            }
            opened => drop(opened?),
        }
    }
    let store = url.to_string();
    Ok(match (json, created) {
        (true, _) => document(&json!({ "store": store, "created": created })),
        (false, true) => format!("{} is a new store\n", shown(&store)),
        (false, false) => format!("{} is up to date\n", shown(&store)),
    })
}

/// Prints the script for an administrator.
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

/// First words of the lines that list the rights of each role.
const RIGHTS: &str = "-- For each role";

/// Joins two scripts: first all tables, then all rights.
fn joined(store: &str, switchboard: &str) -> String {
    let [(store, rights), (switchboard, more)] = [store, switchboard].map(|script| {
        let at = script.find(RIGHTS).unwrap_or(script.len());
        script.split_at(at)
    });
    let (store, switchboard) = (store.trim_end(), switchboard.trim_end());
    let rights = if rights.is_empty() { String::new() } else { format!("\n{rights}{more}") };
    format!("{store}\n\n-- The switchboard.\n{switchboard}\n{rights}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_come_last() {
        let rights = |name: &str| format!("{RIGHTS} of {name}:\n-- GRANT {name};\n");
        let script = |name: &str| format!("BEGIN; {name}\nCOMMIT;\n\n{}", rights(name));
        let tables = "BEGIN; a\nCOMMIT;\n\n-- The switchboard.\nBEGIN; b\nCOMMIT;\n";
        let expected = format!("{tables}\n{}{}", rights("a"), rights("b"));
        assert_eq!(joined(&script("a"), &script("b")), expected);
        assert_eq!(joined("a\n", "b\n"), "a\n\n-- The switchboard.\nb\n");
    }
}
