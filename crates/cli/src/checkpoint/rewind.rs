//! `tenure checkpoint rewind`.

use tenure_core::Code;
use tenure_operate::OperateError;
use tenure_operate::checkpoint::{RewindOptions, RewindOutcome, RewindReport, rewind};

use crate::args::Global;
use crate::failure::Failure;
use crate::signing::SigningSettings;

pub(super) async fn run(
    options: RewindOptions,
    signing: &SigningSettings,
    global: &Global,
) -> Result<String, Failure> {
    let (url, store) = (global.url()?.to_string(), global.open_bare().await?);
    let rewound = rewind(store, url, signing.protection()?, options).await;
    let rewound = rewound.map_err(|error| match error {
        OperateError::Store(error) if error.code() == Code::Held => {
            Failure::from(error).hinting("take it from its holder with --force")
        }
        error => error.into(),
    })?;
    let RewindReport { duty, before, rewind_to, outcome, .. } = &rewound;
    Ok(global.show(&rewound, || match outcome {
        RewindOutcome::Preview { held_by } => {
            let held = held_by.as_ref().map(|who| format!("; held by {who}")).unwrap_or_default();
            format!("would restore version {rewind_to} of {duty} over version {before}{held}\n")
        }
        RewindOutcome::Written { version, epoch } => {
            format!("{duty}: restored {rewind_to} as version {version}, epoch {epoch}\n")
        }
    }))
}
