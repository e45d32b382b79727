//! `tenure store`: operations on a whole store.
//!
//! Why: docs/decisions/0014-epochs-after-a-restore.md

use clap::Subcommand;
use serde_json::json;
use tenure_core::store::{Adopt, Retention};
use tenure_core::text::counted;
use tenure_core::{Code, Epoch, Store, StoreError};
use tenure_duty::process;
use tenure_store::{IfAbsent, StoreUrl};

use crate::failure::Failure;
use crate::output::{DRY_RUN, document, shown, to_stderr};
use crate::switchboard::adopt_inbox;

#[derive(Subcommand)]
pub(crate) enum StoreCommand {
    /// Adopt a restored store: end all sessions, raise all epochs and inbox positions
    Adopt {
        /// Epoch above which duties are granted [default: Unix time in microseconds]
        #[arg(long, value_name = "EPOCH")]
        floor: Option<u64>,
        /// Print what would happen and change nothing
        #[arg(long)]
        dry_run: bool,
        /// Confirm; without it nothing is changed
        #[arg(long, conflicts_with = "dry_run")]
        yes: bool,
    },
    /// Show or set how many checkpoint versions and audit entries are kept
    Retention {
        /// Checkpoint versions per duty, 1 to 1024
        #[arg(long, value_name = "N")]
        history: Option<usize>,
        /// Audit entries, 1000 to 100000000
        #[arg(long, value_name = "N")]
        audit: Option<usize>,
    },
}

/// Consent of the user to a change that cannot be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consent {
    Yes,
    DryRun,
    Missing,
}

pub(crate) async fn run(
    url: &StoreUrl,
    command: StoreCommand,
    json: bool,
) -> Result<String, Failure> {
    let open = || url.open(IfAbsent::Refuse, process::entropy());
    match command {
        StoreCommand::Adopt { floor, dry_run, yes } => {
            let consent = match (yes, dry_run) {
                (true, _) => Consent::Yes,
                (false, true) => Consent::DryRun,
                (false, false) => Consent::Missing,
            };
            let floor = floor.map(Epoch::new).transpose()?;
            adopt(&*open().await?, url, floor, consent, json).await
        }
        StoreCommand::Retention { history, audit } => {
            retention(&*open().await?, url, (history, audit), json).await
        }
    }
}

/// Returns the wall clock as a floor: no duty is granted once per microsecond, so no epoch that a
/// restored store has lost is above it.
fn wall_clock_floor() -> Result<Epoch, StoreError> {
    Epoch::new(process::unix_micros())
}

/// Refuses a floor that only a mistake or a wrong clock can explain: it cannot be undone.
async fn check_floor(store: &dyn Store, floor: Epoch) -> Result<(), StoreError> {
    let now_ms = store.survey().await?.unix_ms.unwrap_or_else(process::unix_ms);
    let last = now_ms.saturating_add(24 * 60 * 60 * 1000).saturating_mul(1000);
    if floor.get() <= last {
        return Ok(());
    }
    let detail = format!(
        "floor {floor} is more than a day above the store's clock, {} in Unix microseconds",
        now_ms.saturating_mul(1000)
    );
    Err(StoreError::refused(Code::BadInput, detail))
}

async fn adopt(
    store: &dyn Store,
    url: &StoreUrl,
    floor: Option<Epoch>,
    consent: Consent,
    json: bool,
) -> Result<String, Failure> {
    let floor = floor.map_or_else(wall_clock_floor, Ok)?;
    check_floor(store, floor).await?;
    // First: it does no harm, so the command can be repeated if the rest fails.
    let inbox = adopt_inbox(url, consent).await?;
    if consent == Consent::Yes {
        let adopted = store.adopt(&Adopt { entropy: process::entropy(), floor }).await?;
        let found = Adoption {
            sessions: adopted.sessions,
            duties: adopted.duties,
            floor: adopted.floor,
            incarnation: Some(adopted.incarnation),
            inbox,
        };
        return Ok(found.text(url, json));
    }
    let found = Adoption::foresee(store, floor, inbox).await?.text(url, json);
    match consent {
        Consent::Missing => Err(Failure::Unconfirmed { shown: found }),
        _ => {
            if !json {
                to_stderr(DRY_RUN);
            }
            Ok(found)
        }
    }
}

/// Result of an adoption, or its forecast.
struct Adoption {
    sessions: u64,
    duties: u64,
    floor: Epoch,
    incarnation: Option<String>,
    /// Position above which the inbox of a switchboard continues.
    inbox: Option<i64>,
}

impl Adoption {
    async fn foresee(
        store: &dyn Store,
        floor: Epoch,
        inbox: Option<i64>,
    ) -> Result<Self, StoreError> {
        let mut found = Self { sessions: 0, duties: 0, floor, incarnation: None, inbox };
        for group in store.groups().await? {
            found.sessions += store.members(&group).await?.len() as u64;
            for holder in store.holders(&group).await? {
                found.duties += 1;
                found.floor = found.floor.max(holder.epoch.unwrap_or_default());
            }
        }
        Ok(found)
    }

    fn text(&self, url: &StoreUrl, json: bool) -> String {
        let Self { sessions, duties, floor, incarnation, inbox } = self;
        if json {
            return document(&json!({
                "store": url.to_string(),
                "adopted": incarnation.is_some(),
                "incarnation": incarnation,
                "sessions": sessions,
                "duties": duties,
                "floor": floor.get(),
                "inbox_floor": inbox,
            }));
        }
        let store = shown(&url.to_string());
        let (text, goes, larger) = match incarnation {
            Some(incarnation) => (
                format!(
                    "{store} was adopted as {incarnation}\n\
                     sessions that ended: {sessions}\n\
                     duties: {duties}, their checkpoints are kept\n\
                     grants continue above epoch {floor}\n"
                ),
                "continues",
                "",
            ),
            None => (
                format!(
                    "{store} would be adopted\n\
                     sessions that would end: {sessions}\n\
                     duties: {duties}, their checkpoints would be kept\n\
                     grants would continue above epoch {floor}, or a larger one that is found\n"
                ),
                "would continue",
                " or so, by the clock of this host",
            ),
        };
        let inbox = inbox.map(|at| format!("the inbox {goes} above position {at}{larger}\n"));
        text + &inbox.unwrap_or_default()
    }
}

async fn retention(
    store: &dyn Store,
    url: &StoreUrl,
    (history, audit): (Option<usize>, Option<usize>),
    json: bool,
) -> Result<String, Failure> {
    let mut kept = store.retention().await?;
    if history.is_some() || audit.is_some() {
        kept = Retention {
            history_slots: history.unwrap_or(kept.history_slots),
            audit_kept: audit.unwrap_or(kept.audit_kept),
        };
        store.retain(kept).await?;
    }
    let Retention { history_slots, audit_kept } = kept;
    Ok(match json {
        true => document(&json!({
            "store": url.to_string(),
            "history": history_slots,
            "audit": audit_kept,
        })),
        false => format!(
            "history: {}\naudit: {audit_kept} entries\n",
            counted(history_slots, "checkpoint", "checkpoints")
        ),
    })
}
