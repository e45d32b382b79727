//! `tenure forget`.

use serde_json::json;
use tenure_core::{Code, StoreError};
use tenure_operate::forget::{ForgetOutcome, forget};

use crate::args::{Global, name};
use crate::failure::Failure;
use crate::output::note_dry_run;
use crate::table::{or_dash, table};

pub(crate) async fn run(
    duties: &[String],
    dry_run: bool,
    global: &Global,
) -> Result<String, Failure> {
    let duties = duties.iter().map(|duty| name(duty, str::parse)).collect::<Result<_, _>>()?;
    let forgotten = forget(&*global.open_bare().await?, duties, dry_run).await?;
    let row = |one: &ForgetOutcome| {
        let holder = or_dash(one.holder.as_ref());
        [one.duty.to_string(), one.outcome.to_owned(), or_dash(one.floor), holder]
    };
    let shown = global.show(&json!({ "dry_run": dry_run, "duties": forgotten }), || {
        note_dry_run(dry_run);
        table(["DUTY", "OUTCOME", ">FLOOR", "HOLDER"], forgotten.iter().map(row))
    });
    let held: Vec<String> = forgotten.iter().filter_map(ForgetOutcome::held).collect();
    if held.is_empty() {
        return Ok(shown);
    }
    let error = StoreError::refused(Code::Held, held.join(", "));
    let kept = match dry_run {
        true => "nothing was changed",
        false => "the held duties, unchanged; see above for the others",
    };
    Err(Failure::partly(shown, error, kept))
}
