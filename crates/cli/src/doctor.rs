//! `tenure doctor`.

use serde_json::json;
use tenure_core::guarantee::{Finding, Level};
use tenure_core::{Store, StoreError};
use tenure_duty::process;
use tenure_operate::doctor::{check, diagnose, level};
use tenure_store::{IfAbsent, StoreUrl};

use crate::failure::Failure;
use crate::output::{document, shown, to_stderr, to_stdout, value};
use crate::table::table;

/// Prints the diagnosis; a guarantee below `require` is an error after that.
pub(crate) async fn run(
    url: &StoreUrl,
    require: Option<Level>,
    json: bool,
) -> Result<String, Failure> {
    let store = url.open(IfAbsent::Refuse, process::entropy()).await?;
    let diagnosis = diagnose(&*store).await?;
    let level = diagnosis.level;
    let enough = check(level, require);
    let text = match json {
        true => {
            let mut value = value(&diagnosis);
            value["store"] = url.to_string().into();
            value["required"] = json!(require.map(Level::as_str));
            value["satisfied"] = enough.is_ok().into();
            document(&value)
        }
        false => {
            let heads = ["SETTING", "VALUE", "STATE", "AT_MOST", "MEANING"];
            let findings = table(heads, diagnosis.findings.iter().map(row));
            format!("guarantee: {level} ({})\n\n{findings}", level.sentence())
        }
    };
    if let Err(refusal) = enough {
        to_stdout(&text).map_err(anyhow::Error::from)?;
        return Err(refusal.into());
    }
    Ok(text)
}

/// Prints the guarantee before a command begins; refuses one below `require`.
pub(crate) async fn at_start(store: &dyn Store, require: Option<Level>) -> Result<(), StoreError> {
    let level = level(store).await?;
    to_stderr(&format!("guarantee: {level} (see `tenure doctor`)"));
    check(level, require)
}

fn row(finding: &Finding) -> [String; 5] {
    let state = match finding {
        finding if finding.lowers => "lowers",
        finding if finding.attention() => "look",
        _ => "ok",
    };
    let change = finding.change.map(|change| format!("; change: {change}")).unwrap_or_default();
    [
        finding.setting.to_owned(),
        finding.value.as_deref().map_or_else(|| "-".to_owned(), shown),
        state.to_owned(),
        finding.level.to_string(),
        format!("{}{change}", finding.sentence),
    ]
}
