//! `tenure doctor`.

use serde_json::json;
use tenure_core::guarantee::{Finding, Level};
use tenure_core::{Store, StoreError};
use tenure_operate::doctor::{check, diagnose, level};
use tenure_operate::list::{UntrustedMember, untrusted};

use crate::args::{Global, TrustArgs};
use crate::failure::Failure;
use crate::output::{shown, to_stderr, to_stdout, value};
use crate::table::{or_dash, table};

/// Prints the diagnosis, then fails if the guarantee is below `require`.
pub(crate) async fn run(
    require: Option<Level>,
    trust: &TrustArgs,
    global: &Global,
) -> Result<String, Failure> {
    let trusted = trust.trusted()?;
    let (url, store) = (global.url()?, global.open_bare().await?);
    let diagnosis = diagnose(&*store).await?;
    let level = diagnosis.level;
    let enough = check(level, require);
    let mut value = value(&diagnosis);
    value["store"] = url.to_string().into();
    value["required"] = json!(require.map(Level::as_str));
    value["satisfied"] = enough.is_ok().into();
    let untrusted = match &trusted {
        Some(trusted) => untrusted(&*store, trusted).await?,
        None => Vec::new(),
    };
    if trusted.is_some() {
        value["untrusted_members"] = json!(untrusted);
    }
    let text = global.show(&value, || {
        let heads = ["SETTING", "VALUE", "STATE", "AT_MOST", "MEANING"];
        let findings = table(heads, diagnosis.findings.iter().map(row));
        let row = |UntrustedMember { group, instance, why }: &UntrustedMember| {
            [group.to_string(), instance.to_string(), (*why).to_owned()]
        };
        let heads = ["GROUP", "UNTRUSTED_MEMBER", "REASON"];
        let members = match untrusted.is_empty() {
            true => String::new(),
            false => format!("\n{}", table(heads, untrusted.iter().map(row))),
        };
        format!("guarantee: {level} ({})\n\n{findings}{members}", level.sentence())
    });
    if let Err(refusal) = enough {
        to_stdout(text)?;
        return Err(refusal.into());
    }
    Ok(text)
}

/// Prints the guarantee before a command begins; fails if it is below `require`.
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
        or_dash(finding.value.as_deref().map(shown)),
        state.to_owned(),
        finding.level.to_string(),
        format!("{}{change}", finding.sentence),
    ]
}
