//! `tenure forget`.

use tenure_core::{Code, DutyKey, StoreError};
use tenure_duty::process;
use tenure_operate::forget::{ForgetOutcome, forget};
use tenure_store::{IfAbsent, StoreUrl};

use crate::failure::Failure;
use crate::output::{DRY_RUN, report, to_stderr};
use crate::table::{or_dash, table};

pub(super) async fn run(
    url: &StoreUrl,
    duties: Vec<DutyKey>,
    dry_run: bool,
    json: bool,
) -> Result<String, Failure> {
    let store = url.open_bare(IfAbsent::Refuse, process::entropy()).await?;
    let forgotten = forget(&*store, duties, dry_run).await?;
    let shown = match json {
        true => report(&forgotten),
        false => table(["DUTY", "OUTCOME", ">FLOOR", "HOLDER"], forgotten.duties.iter().map(row)),
    };
    if dry_run && !json {
        to_stderr(DRY_RUN);
    }
    let held = forgotten.held();
    if held.is_empty() {
        return Ok(shown);
    }
    let error = StoreError::refused(Code::Held, held.join(", "));
    let kept = match dry_run {
        true => "nothing was changed",
        false => "the held duties, unchanged; see above for the others",
    };
    Err(Failure::Partly { shown, error, kept })
}

fn row(one: &ForgetOutcome) -> [String; 4] {
    let holder = or_dash(one.holder.as_ref());
    [one.duty.to_string(), one.outcome.to_owned(), or_dash(one.floor), holder]
}
