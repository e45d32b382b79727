//! `tenure migrate`: makes the store or updates its schema.

use serde_json::json;
use tenure_core::Code;
use tenure_duty::process;
use tenure_store::{IfAbsent, StoreUrl};

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
    let store = url.to_string();
    Ok(match (json, created) {
        (true, _) => document(&json!({ "store": store, "created": created })),
        (false, true) => format!("{} is a new store\n", shown(&store)),
        (false, false) => format!("{} is up to date\n", shown(&store)),
    })
}

/// The script, for those who may not run it through us.
pub(crate) fn script(url: &StoreUrl, json: bool) -> Result<String, Failure> {
    let script = url.migration_script()?;
    Ok(match json {
        true => document(&json!({ "store": url.to_string(), "script": script })),
        false => script,
    })
}
