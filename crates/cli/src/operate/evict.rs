//! `tenure evict`.

use tenure_operate::evict::{EvictOptions, EvictReport, evict};

use super::{InstanceArgs, duties, for_each, some_of};
use crate::args::Global;
use crate::failure::Failure;
use crate::output::{note_dry_run, to_stderr};

#[derive(clap::Args)]
#[command(override_usage = "\
    tenure evict [OPTIONS] <GROUP> <INSTANCE>
       tenure evict [OPTIONS] --all-groups <INSTANCE>")]
pub(crate) struct EvictArgs {
    #[command(flatten)]
    target: InstanceArgs,
    /// Free its duties at once; its later writes are fenced
    #[arg(long)]
    now: bool,
    /// Print what would happen and change nothing
    #[arg(long)]
    dry_run: bool,
}

impl EvictArgs {
    pub(crate) async fn run(&self, global: &Global) -> Result<String, Failure> {
        let word = self.target.word()?;
        let store = &*global.open().await?;
        let targets = word.find(store).await?;
        let evict = async |(group, instance), dry_run| {
            evict(store, EvictOptions { group, instance, now: self.now, dry_run }).await
        };
        let show = |evicted: &[EvictReport]| word.show(global, evicted, sentences);
        let evicted = for_each(targets, self.dry_run, evict, show).await?;
        if !global.json {
            note_dry_run(self.dry_run);
            for report in evicted.iter().filter(|report| !report.has_successor) {
                let group = &report.options.group;
                to_stderr(&format!(
                    "no other member takes duties in {group}: they stay free until one joins"
                ));
            }
        }
        Ok(show(&evicted))
    }
}

fn sentences(evicted: &EvictReport) -> String {
    let EvictReport { options, changed, duties: held, .. } = evicted;
    let EvictOptions { group, instance, now, dry_run } = options;
    let did = match (changed, evicted.was_member, dry_run) {
        (false, _, _) => "was already evicted",
        (true, false, _) => "is not a member, and cannot join again",
        (true, true, true) => "would be evicted",
        (true, true, false) => "is evicted: it can neither renew nor join again",
    };
    let latest = held.iter().map(|freed| freed.free_in_ms).max().unwrap_or(0);
    let when = match (now, dry_run) {
        (true, true) => "would be free now".to_owned(),
        (true, false) if held.len() == 1 => "is free now".to_owned(),
        (true, false) => "are free now".to_owned(),
        (false, true) => format!("would be free within {latest} ms"),
        (false, false) => format!("will be free within {latest} ms"),
    };
    let names = some_of(held.iter().map(|freed| freed.duty.to_string()));
    let what = match held.len() {
        0 => "it held nothing".to_owned(),
        count => format!("{} {when}: {names}", duties(count)),
    };
    format!("{instance} of {group} {did}\n{what}\n")
}
