//! `tenure store restore`: puts a backup in the place of a store. The backup is adopted before
//! anybody can open it there.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};
use tenure_core::{Code, Epoch};
use tenure_duty::process;
use tenure_store::backup::RestoreTarget;
use tenure_store::{IfAbsent, StoreUrl};

use super::backup::{Held, STANDARD_STREAM, refuse_server};
use super::staging::{complete, folder_beside};
use super::{Adoption, Consent, default_floor};
use crate::args::Global;
use crate::failure::Failure;
use crate::output::{note_dry_run, shown};

/// Names of the staged store's folder, and of a backup that was read from standard input.
const STAGED: &str = "staged";
const INPUT: &str = "input";

pub(super) async fn run(
    from: &Path,
    floor: Option<Epoch>,
    consent: Consent,
    global: &Global,
) -> Result<String, Failure> {
    let url = global.url()?;
    refuse_server(&url, global)?;
    let folder = folder_beside(&url.real_path()?)?;
    let input = folder.path().join(INPUT);
    let is_input = from == Path::new(STANDARD_STREAM);
    if is_input {
        let read = File::create(&input).and_then(|mut to| io::copy(&mut io::stdin(), &mut to));
        read.context("cannot read the backup from standard input")?;
    }
    let place = folder.path().join(STAGED);
    std::fs::create_dir(&place).context("cannot create a folder for the copy")?;
    let (staged, contents) = url.stage(if is_input { &input } else { from }, &place)?;
    let held = Held::new(&staged, contents)?;
    let store = staged.open_bare(IfAbsent::Create, process::entropy()).await?;
    let floor = default_floor(&*store, floor).await?;
    let target = match consent {
        Consent::Yes => Some(lock(&url)?),
        _ => None,
    };
    let floor = target.as_ref().map_or(floor, |target| floor.max(target.floor()));
    let adoption = Adoption::run(&staged, &*store, floor, consent).await?;
    drop(store);
    complete();
    let before = target.map(|target| target.replace(&staged)).transpose()?.flatten();
    let restored = Restored { held, adoption, before };
    let report = global.show(&restored.value(&url, from), || {
        note_dry_run(consent == Consent::DryRun);
        restored.text(&url, from)
    });
    consent.answer(report)
}

fn lock(url: &StoreUrl) -> Result<RestoreTarget, Failure> {
    url.lock_for_restore().map_err(|error| match error.code() {
        Code::InUse => Failure::from(error)
            .hinting("stop all processes that use the store, and run the command again"),
        _ => error.into(),
    })
}

/// Result of a restore, or its preview.
struct Restored {
    held: Held,
    adoption: Adoption,
    /// Place of the store before.
    before: Option<PathBuf>,
}

impl Restored {
    fn value(&self, url: &StoreUrl, from: &Path) -> Value {
        let Adoption { sessions, floor, incarnation, inbox, .. } = &self.adoption;
        let mut value = self.held.value(url, from);
        value["restored"] = incarnation.is_some().into();
        value["before"] = json!(self.before.as_ref().map(|before| before.display().to_string()));
        value["incarnation"] = json!(incarnation);
        value["sessions"] = json!(sessions);
        value["floor"] = json!(floor.get());
        value["inbox_floor"] = json!(inbox);
        value
    }

    fn text(&self, url: &StoreUrl, from: &Path) -> String {
        let was = if self.adoption.incarnation.is_some() { "was" } else { "would be" };
        let (store, from) = (url.to_string(), from.display().to_string());
        let before = self.before.as_ref().map(|before| {
            format!("the store before is kept as {}\n", shown(&before.display().to_string()))
        });
        format!(
            "{} {was} restored from {}: {}{}{}",
            shown(&store),
            shown(&from),
            self.held.text(),
            self.adoption.text(url),
            before.unwrap_or_default()
        )
    }
}
