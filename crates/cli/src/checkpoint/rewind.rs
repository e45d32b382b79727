//! `tenure checkpoint rewind`: an older document becomes the newest again.

use serde_json::json;
use tenure_core::{Code, DutyKey, StoreError, Version};
use tenure_store::transfer::{self, Desk};
use tenure_store::{IfAbsent, StoreUrl};

use super::{absent, bare, operator};
use crate::failure::Failure;
use crate::output::document;
use crate::signing;

#[derive(Debug)]
pub(crate) struct Rewind {
    pub(super) duty: DutyKey,
    pub(super) to: Version,
    pub(super) force: bool,
    pub(super) dry_run: bool,
}

pub(super) async fn run(
    url: &StoreUrl,
    signing: &signing::Settings,
    rewind: Rewind,
    json: bool,
) -> Result<String, Failure> {
    let Rewind { duty, to, force, dry_run } = rewind;
    let store = bare(url, IfAbsent::Refuse).await?;
    let newest = store.load(std::slice::from_ref(&duty)).await?.into_iter().next().flatten();
    let ring = store.history(&duty).await?;
    if newest.is_none() && ring.is_empty() {
        return Err(absent(&duty).into());
    }
    if dry_run {
        if !ring.iter().any(|old| old.version == to) {
            let detail = format!("no version {to} of {duty} is in its history");
            return Err(StoreError::refused(Code::BadInput, detail).into());
        }
        let before = newest.map_or(Version::ZERO, |newest| newest.version);
        let holders = store.holders(&duty.group).await?;
        let holder = holders.into_iter().find(|holder| holder.duty == duty);
        let holder = holder.and_then(|holder| holder.holder).map(|now| now.instance.to_string());
        return Ok(match json {
            true => document(&json!({
                "duty": duty.to_string(), "dry_run": true, "before": before.get(),
                "rewind_to": to.get(), "held_by": holder,
            })),
            false => {
                let held = holder.map_or_else(String::new, |who| format!("; held by {who}"));
                format!("would take {duty} from version {before} to the document of {to}{held}\n")
            }
        });
    }
    let operator = operator("checkpoint rewind", force)?;
    let mut desk = Desk::new(store, signing.signing()?, url.to_string(), operator);
    let rewound = transfer::rewind(&mut desk, &duty, to).await;
    desk.close().await;
    let rewound = rewound.map_err(|error| match error.code() {
        Code::Held => Failure::Hinted { error, hint: "take it from its holder with --force" },
        _ => error.into(),
    })?;
    let (before, now, epoch) = (rewound.before, rewound.now, rewound.epoch);
    Ok(match json {
        true => document(&json!({
            "duty": duty.to_string(), "dry_run": false, "before": before.get(),
            "rewind_to": to.get(), "version": now.get(), "epoch": epoch.get(),
        })),
        false => format!("{duty}: version {now}, epoch {epoch}, has the document of {to} again\n"),
    })
}
