//! `tenure bucket filter`.

use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use tenure_core::bucket::{Active, Partition, Total};
use tenure_core::text::counted;
use tenure_operate::bucket::{EntityLines, each, entity, read_run_config};

use super::plan::UPDATE_BYTES;
use super::{number, total};
use crate::args::path;
use crate::env;
use crate::failure::Failure;
use crate::output::StatusLine;

#[derive(clap::Args)]
pub(crate) struct BucketFilterArgs {
    /// Key of the connector: a name, not a secret
    #[arg(long)]
    key: String,
    /// Bucket whose entities are kept
    #[arg(long, value_name = "I", env = env::BUCKET_ID, value_parser = id)]
    #[arg(allow_negative_numbers = true, required_unless_present = "config")]
    id: Option<u64>,
    /// Number of buckets
    #[arg(long, value_name = "N", env = env::BUCKET_TOTAL, value_parser = total)]
    #[arg(allow_negative_numbers = true, required_unless_present = "config")]
    total: Option<Total>,
    /// Connector config with bucket and total, instead of --id and --total; in a rotation, the
    /// config of the run
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Reads a bucket number; whether it exceeds the total is checked later.
fn id(text: &str) -> Result<u64, String> {
    number(text).ok_or_else(|| "bucket_id is a whole number from 1 to the total".to_owned())
}

pub(super) fn run(args: &BucketFilterArgs) -> Result<ExitCode, Failure> {
    let active = match (&args.config, args.id, args.total) {
        (Some(config), id, total) => {
            let set = read_run_config(&path(config)?)?;
            let differs = id.is_some_and(|id| id != u64::from(set.id))
                || total.is_some_and(|total| total != set.total);
            if differs {
                let ([id, total], set) = (env::BUCKET, (set.id, set.total));
                return Err(Failure::Usage(format!(
                    "--config sets bucket {} of {}; --id or --total ({id}, {total}) differs",
                    set.0, set.1
                )));
            }
            set.active(&args.key)
        }
        (None, id, total) => {
            // clap requires both without --config.
            let (id, total) = (id.unwrap_or(1), total.unwrap_or(Total::ONE));
            Partition::new(&args.key, total).active(id)
        }
    };
    let active =
        active.map_err(|invalid| Failure::Usage(format!("--id: {}", invalid.details())))?;
    filter(&active, io::stdin().lock(), io::stdout().lock())?;
    Ok(ExitCode::SUCCESS)
}

fn filter(active: &Active, input: impl Read, mut output: impl Write) -> Result<(), Failure> {
    let mut lines = EntityLines::new(input, "standard input".to_owned());
    let mut selected = Vec::new();
    let (mut status, mut bytes, mut entities) = (StatusLine::default(), 0, 0_u64);
    loop {
        let block = lines.block().map_err(|error| {
            let kept = "earlier lines of the bucket were written";
            Failure::from(error).keeping(kept)
        })?;
        let Some(block) = block else { return Ok(()) };
        selected.clear();
        for line in each(block) {
            entities += 1;
            if active.contains(entity(line)) {
                selected.extend_from_slice(line);
            }
        }
        bytes += block.len();
        // On a terminal, the lines themselves are the progress.
        if bytes >= UPDATE_BYTES && !io::stdout().is_terminal() {
            bytes = 0;
            status.show(&format!("{} so far", counted(entities, "entity", "entities")));
        }
        // Flush, so that no line is held back while waiting for more input.
        match output.write_all(&selected).and_then(|()| output.flush()) {
            // The reader closed the pipe, as in `| head`.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            written => written.context("cannot write to standard output").map_err(|error| {
                let kept = "some lines were written; the last one may be incomplete";
                Failure::from(error).keeping(kept)
            })?,
        }
    }
}
