//! `tenure store`: operations on a whole store.
//!
//! Why: docs/decisions/0014-epochs-after-a-restore.md

mod backup;
mod restore;
mod staging;

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Value, json};
use tenure_core::store::{Adopt, Retention};
use tenure_core::text::counted;
use tenure_core::{Code, Epoch, Store, StoreError};
use tenure_duty::process;
use tenure_store::StoreUrl;

use crate::args::Global;
use crate::failure::Failure;
use crate::output::{note_dry_run, shown};
use crate::switchboard::adopt_inbox;

#[derive(Subcommand)]
pub(crate) enum StoreCommand {
    /// Back up a store in files while it is in use, or print the commands of a server
    Backup {
        /// New file for SQLite, or new folder for a cursor file; - for standard output
        #[arg(value_name = "PATH|-")]
        to: Option<PathBuf>,
        /// Replace an existing backup
        #[arg(long)]
        force: bool,
    },
    /// Replace a store in files by a backup and adopt it, or print commands of a server
    Restore {
        /// The backup; - for standard input
        #[arg(value_name = "PATH|-")]
        from: PathBuf,
        #[command(flatten)]
        adoption: AdoptionArgs,
    },
    /// Adopt a restored store: end all sessions, raise all epochs and inbox positions
    Adopt(AdoptionArgs),
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

#[derive(clap::Args)]
pub(crate) struct AdoptionArgs {
    /// Epoch above which duties are granted [default: Unix time in microseconds]
    #[arg(long, value_name = "EPOCH")]
    floor: Option<u64>,
    /// Print what would happen and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Confirm; without it nothing is changed
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
}

impl AdoptionArgs {
    fn floor(&self) -> Result<Option<Epoch>, StoreError> {
        self.floor.map(Epoch::new).transpose()
    }

    fn consent(&self) -> Consent {
        match (self.yes, self.dry_run) {
            (true, _) => Consent::Yes,
            (false, true) => Consent::DryRun,
            (false, false) => Consent::Missing,
        }
    }
}

/// Consent of the user to a change that cannot be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consent {
    Yes,
    DryRun,
    Missing,
}

impl Consent {
    /// Returns a report, or the failure for a change that was not confirmed.
    fn answer(self, shown: String) -> Result<String, Failure> {
        match self {
            Self::Missing => Err(Failure::Unconfirmed { shown }),
            _ => Ok(shown),
        }
    }
}

pub(crate) async fn run(command: StoreCommand, global: &Global) -> Result<String, Failure> {
    let done = match command {
        StoreCommand::Backup { to, force } => backup::run(to.as_deref(), force, global),
        StoreCommand::Restore { from, adoption } => {
            restore::run(&from, adoption.floor()?, adoption.consent(), global).await
        }
        StoreCommand::Adopt(args) => adopt(args.floor()?, args.consent(), global).await,
        StoreCommand::Retention { history, audit } => retention(history, audit, global).await,
    };
    staging::complete();
    done
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

async fn adopt(floor: Option<Epoch>, consent: Consent, global: &Global) -> Result<String, Failure> {
    let (url, store) = (&global.url()?, &*global.open().await?);
    let found = Adoption::run(url, store, default_floor(store, floor).await?, consent).await?;
    let shown = global.show(&found.value(url), || {
        note_dry_run(consent == Consent::DryRun);
        found.text(url)
    });
    consent.answer(shown)
}

/// Returns the epoch above which an adopted store grants. Duties are granted less than once per
/// microsecond, so every epoch that a restored store has lost is below the wall clock.
async fn default_floor(store: &dyn Store, floor: Option<Epoch>) -> Result<Epoch, StoreError> {
    let floor = floor.map_or_else(|| Epoch::new(process::unix_micros()), Ok)?;
    check_floor(store, floor).await?;
    Ok(floor)
}

/// Result of an adoption, or its preview.
struct Adoption {
    sessions: u64,
    duties: u64,
    floor: Epoch,
    incarnation: Option<String>,
    /// Position above which the inbox of a switchboard continues.
    inbox: Option<i64>,
}

impl Adoption {
    /// Adopts a store and its inbox, or previews that without consent.
    async fn run(
        url: &StoreUrl,
        store: &dyn Store,
        floor: Epoch,
        consent: Consent,
    ) -> Result<Self, StoreError> {
        // Adopt the inbox first: it does no harm, so the command can be repeated if the rest fails.
        let inbox = adopt_inbox(url, consent).await?;
        if consent != Consent::Yes {
            return Self::preview(store, floor, inbox).await;
        }
        let adopted = store.adopt(&Adopt { entropy: process::entropy(), floor }).await?;
        let (sessions, duties, floor) = (adopted.sessions, adopted.duties, adopted.floor);
        let incarnation = Some(adopted.incarnation);
        Ok(Self { sessions, duties, floor, incarnation, inbox })
    }

    async fn preview(
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

    fn value(&self, url: &StoreUrl) -> Value {
        let Self { sessions, duties, floor, incarnation, inbox } = self;
        json!({
            "store": url.to_string(),
            "adopted": incarnation.is_some(),
            "incarnation": incarnation,
            "sessions": sessions,
            "duties": duties,
            "floor": floor.get(),
            "inbox_floor": inbox,
        })
    }

    fn text(&self, url: &StoreUrl) -> String {
        let Self { sessions, duties, floor, incarnation, inbox } = self;
        let store = shown(&url.to_string());
        let text = match incarnation {
            Some(incarnation) => format!(
                "{store} was adopted as {incarnation}\n\
                 sessions that ended: {sessions}\n\
                 duties: {duties}, their checkpoints are kept\n\
                 grants continue above epoch {floor}\n"
            ),
            None => format!(
                "{store} would be adopted\n\
                 sessions that would end: {sessions}\n\
                 duties: {duties}, their checkpoints would be kept\n\
                 grants would continue above epoch {floor}, or a larger one that is found\n"
            ),
        };
        let inbox = inbox.map(|at| match incarnation {
            Some(_) => format!("the inbox continues above position {at}\n"),
            None => format!(
                "the inbox would continue above position {at} (estimated from this host's clock)\n"
            ),
        });
        text + &inbox.unwrap_or_default()
    }
}

async fn retention(
    history: Option<usize>,
    audit: Option<usize>,
    global: &Global,
) -> Result<String, Failure> {
    let (url, store) = (global.url()?, global.open().await?);
    let mut kept = store.retention().await?;
    if history.is_some() || audit.is_some() {
        kept = Retention {
            history_slots: history.unwrap_or(kept.history_slots),
            audit_kept: audit.unwrap_or(kept.audit_kept),
        };
        store.retain(kept).await?;
    }
    let Retention { history_slots, audit_kept } = kept;
    let value = json!({ "store": url.to_string(), "history": history_slots, "audit": audit_kept });
    let history = counted(history_slots, "checkpoint", "checkpoints");
    Ok(global.show(&value, || format!("history: {history}\naudit: {audit_kept} entries\n")))
}
