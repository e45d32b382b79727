//! `tenure migrate`: creates a store or updates its schema.

use serde_json::json;
use tenure_core::Code;
use tenure_duty::process;
use tenure_store::IfAbsent;
use tenure_switchboard::storage;

use crate::args::Global;
use crate::failure::Failure;
use crate::output::{shown, to_stderr};

/// Updates the schema by opening the store, or creates the store.
pub(crate) async fn run(global: &Global) -> Result<String, Failure> {
    let url = &global.url()?;
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
    // The switchboard has tables of its own in the same database.
    if url.tables().is_ok() {
        match storage::open(url, IfAbsent::Create).await {
            // A role that does not run the switchboard may have no rights on its tables.
            Err(error) if error.code() == Code::Denied => {
                to_stderr("this role has no rights on the tables of the switchboard");
            }
            opened => drop(opened?),
        }
    }
    let (store, is) = (url.to_string(), if created { "a new store" } else { "up to date" });
    Ok(global.show(&json!({ "store": store, "created": created }), || {
        format!("{} is {is}\n", shown(&store))
    }))
}

/// Prints the script for an administrator.
pub(crate) fn script(global: &Global) -> Result<String, Failure> {
    let url = &global.url()?;
    let mut script = url.migration_script()?;
    if url.tables().is_ok() {
        script = joined(&script, &storage::script(url)?);
    }
    Ok(global.show(&json!({ "store": url.to_string(), "script": script }), || script.clone()))
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
