//! `tenure checkpoint verify`.

use tenure_core::text::counted;
use tenure_core::{Code, StoreError};
use tenure_operate::checkpoint::{
    UnreadableCheckpoint, VerifiedCheckpoint, VerifyReport, describe_seal, verify,
};
use tenure_operate::pause::Scope;

use crate::args::Global;
use crate::failure::Failure;
use crate::output::{shown, to_stderr, to_stdout};
use crate::signing::SigningSettings;
use crate::table::{or_dash, table};

pub(super) async fn run(
    scopes: &[Scope],
    signing: &SigningSettings,
    global: &Global,
) -> Result<String, Failure> {
    let (url, protection) = (global.url()?, signing.verifying()?);
    let store = global.open_bare().await?;
    let verified = verify(&*store, &protection, scopes).await?;
    let text = global.show(&verified, || text(&verified));
    if verified.faults == 0 {
        return Ok(text);
    }
    // The report is printed in any case; the error follows.
    to_stdout(text)?;
    let all = verified.checkpoints.len() + verified.unreadable.len();
    let all = counted(all, "checkpoint", "checkpoints");
    let detail = format!("{} of {all} in {url}", verified.faults);
    Err(StoreError::refused(fault(&verified), detail).into())
}

/// Returns the code of the faults, if all are of one kind.
fn fault(verified: &VerifyReport) -> Code {
    let mut codes = verified.unreadable.iter().map(|one| one.error.code());
    let signed = verified.checkpoints.iter().all(|one| !one.is_fault);
    match codes.next() {
        Some(code @ (Code::CannotDecrypt | Code::Untrusted))
            if signed && codes.all(|other| other == code) =>
        {
            code
        }
        _ => Code::BadSignature,
    }
}

/// Lists every newest checkpoint, and the faults in the histories.
fn text(verified: &VerifyReport) -> String {
    let place = |newest| if newest { "newest" } else { "history" }.to_owned();
    let row = |one: &VerifiedCheckpoint| {
        [
            one.duty.to_string(),
            one.checkpoint.version.to_string(),
            one.checkpoint.epoch.to_string(),
            place(one.newest),
            shown(&describe_seal(&one.inspected)),
        ]
    };
    let unreadable = |one: &UnreadableCheckpoint| {
        let none = || or_dash(None::<u64>);
        let problem = shown(&one.error.problem().to_string());
        [one.duty.to_string(), none(), none(), place(one.newest), problem]
    };
    let listed = verified.checkpoints.iter().filter(|one| one.newest || one.is_fault);
    let rows = listed.map(row).chain(verified.unreadable.iter().map(unreadable));
    for (key, count) in &verified.newest_by_key {
        to_stderr(&format!("newest checkpoints by key {}: {count}", shown(key)));
    }
    for (key, count) in &verified.newest_by_encryption_key {
        to_stderr(&format!("newest checkpoints by encryption key {}: {count}", shown(key)));
    }
    table(["DUTY", ">VERSION", ">EPOCH", "PLACE", "SIGNATURE"], rows)
}
