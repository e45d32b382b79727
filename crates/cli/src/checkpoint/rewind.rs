//! `tenure checkpoint rewind`.

use tenure_core::Code;
use tenure_operate::OperateError;
use tenure_operate::checkpoint::{RewindOptions, RewindOutcome, RewindReport, rewind};
use tenure_store::{IfAbsent, StoreUrl};

use super::open_bare;
use crate::failure::Failure;
use crate::output::report;
use crate::signing;

pub(super) async fn run(
    url: &StoreUrl,
    signing: &signing::SigningSettings,
    options: RewindOptions,
    json: bool,
) -> Result<String, Failure> {
    let store = open_bare(url, IfAbsent::Refuse).await?;
    let rewound = rewind(store, url.to_string(), signing.signing()?, options).await;
    let rewound = rewound.map_err(|error| match error {
        OperateError::Store(error) if error.code() == Code::Held => {
            Failure::Hinted { error, hint: "take it from its holder with --force" }
        }
        error => error.into(),
    })?;
    if json {
        return Ok(report(&rewound));
    }
    let RewindReport { duty, before, rewind_to, outcome, .. } = rewound;
    Ok(match outcome {
        RewindOutcome::Preview { held_by } => {
            let held = held_by.map_or_else(String::new, |who| format!("; held by {who}"));
            format!("would restore version {rewind_to} of {duty} over version {before}{held}\n")
        }
        RewindOutcome::Written { version, epoch } => {
            format!("{duty}: restored {rewind_to} as version {version}, epoch {epoch}\n")
        }
    })
}
