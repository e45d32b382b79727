//! `tenure dead`: dead letters, the events that connectors gave up.

mod end;

use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};
use tenure_core::{Code, StoreError};
use tenure_operate::explain::PastTime;
use tenure_switchboard::storage::{LetterQuery, Storage, StoredLetter};
use tenure_switchboard::view;
use tenure_wire::ingest::Fields;
use uuid::Uuid;

use super::token::micros;
use super::{ago, at, fields, now, open};
use crate::args::{Global, quoted};
use crate::failure::Failure;
use crate::limits::check_count;
use crate::operate::read_time;
use crate::output::{shown, to_stderr, to_stdout};
use crate::progress;
use crate::table::{or_dash, table};

/// Letters per read: each may be large.
const PAGE_LETTERS: usize = 8;
/// Maximum of `--limit`, which bounds the memory of a report.
const MAX_LETTERS: usize = 100_000;

#[derive(Subcommand)]
pub(crate) enum DeadCommand {
    /// List dead letters, oldest first
    Ls(ListArgs),
    /// Show a dead letter: its reason, its times, and its envelope
    Show {
        /// Id, from `tenure dead ls`
        id: String,
        /// Write only the envelope, byte for byte
        #[arg(long)]
        raw: bool,
    },
    /// Submit the events of dead letters again; each takes effect once
    Replay(ReplayArgs),
    /// End dead letters without submitting their events
    Discard(DiscardArgs),
}

/// Selection of letters by their content.
#[derive(clap::Args)]
pub(crate) struct LetterFilter {
    /// Only letters of this channel
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    channel: Option<String>,
    /// Only letters of this provider
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    provider: Option<String>,
    /// Only letters of this endpoint
    #[arg(long, value_name = "IDENTITY", value_parser = NonEmptyStringValueParser::new())]
    endpoint: Option<String>,
    /// Only letters whose error has this text, as in timeout; an error is CLASS: REASON
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    error: Option<String>,
    /// Only letters posted since this time: 2026-02-15T10:00:00Z, or 1h for an hour ago
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
}

#[derive(clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    filter: LetterFilter,
    /// Only letters in this state
    #[arg(long, value_enum, default_value = "pending")]
    state: LetterState,
    /// Continue after this id
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    /// Maximum number of letters, up to 100000
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LetterState {
    /// Not replayed or discarded yet
    Pending,
    /// Its event was submitted again
    Replayed,
    /// Ended without an effect
    Discarded,
    /// Any of these
    All,
}

/// Letters to end: named, or all that match.
#[derive(clap::Args)]
pub(crate) struct LetterSelection {
    /// Ids, from `tenure dead ls`
    #[arg(value_name = "ID", required_unless_present = "all")]
    ids: Vec<String>,
    /// Every pending letter that the filters select
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    #[command(flatten)]
    filter: LetterFilter,
    /// Maximum number of letters with --all, oldest first, up to 100000
    #[arg(long, value_name = "N", default_value_t = 10_000, conflicts_with = "ids")]
    limit: usize,
    /// Print what would happen and change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(clap::Args)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    selection: LetterSelection,
    /// Event fields that `ingest.v1` does not define, as for `tenure serve`
    #[arg(long, value_name = "refused|kept", default_value = "refused")]
    #[arg(env = "TENURE_FIELDS", value_parser = super::serve::fields)]
    fields: Fields,
}

#[derive(clap::Args)]
pub(crate) struct DiscardArgs {
    #[command(flatten)]
    selection: LetterSelection,
    /// Reason, kept with the letters
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

pub(crate) async fn run(command: DeadCommand, global: &Global) -> Result<ExitCode, Failure> {
    let text = match command {
        DeadCommand::Ls(args) => ls(&args, global).await?,
        DeadCommand::Show { id, raw } => show(&id, raw, global).await?,
        DeadCommand::Replay(args) => return args.run(global).await,
        DeadCommand::Discard(args) => return args.run(global).await,
    };
    to_stdout(text)?;
    Ok(ExitCode::SUCCESS)
}

fn letter_id(text: &str) -> Result<Uuid, Failure> {
    Uuid::try_parse(text).map_err(|_| {
        let text = quoted(text);
        Failure::Usage(format!("{text} is not the id of a dead letter; see `tenure dead ls`"))
    })
}

async fn find(storage: &dyn Storage, id: Uuid) -> Result<StoredLetter, Failure> {
    let found = storage.letter(id).await?;
    found.ok_or_else(|| StoreError::refused(Code::NoSuchLetter, id.to_string()).into())
}

impl LetterFilter {
    fn is_empty(&self) -> bool {
        let Self { channel, provider, endpoint, error, since } = self;
        [channel, provider, endpoint, error, since].into_iter().all(Option::is_none)
    }

    fn query(&self) -> Result<LetterQuery, Failure> {
        let time = |text: &str| {
            Ok::<_, Failure>(match read_time("--since", text)? {
                PastTime::At(ms) => ms.saturating_mul(1000),
                PastTime::Ago(time) => now().saturating_sub(micros(time)),
            })
        };
        Ok(LetterQuery {
            channel: self.channel.clone(),
            provider: self.provider.clone(),
            endpoint_identity: self.endpoint.clone(),
            error: self.error.clone(),
            since: self.since.as_deref().map(time).transpose()?,
            ..LetterQuery::default()
        })
    }
}

/// Letters of a query, a few in memory at a time.
struct LetterPages<'a> {
    storage: &'a dyn Storage,
    query: LetterQuery,
    /// Number of letters that may still be read.
    left: usize,
    /// Whether the last page was full.
    more: bool,
}

impl<'a> LetterPages<'a> {
    fn new(storage: &'a dyn Storage, query: LetterQuery, limit: usize) -> Self {
        Self { storage, query, left: limit, more: true }
    }

    /// Returns the next letters; none at the end.
    async fn next(&mut self) -> Result<Vec<StoredLetter>, StoreError> {
        if !self.more || self.left == 0 {
            return Ok(Vec::new());
        }
        self.query.limit = PAGE_LETTERS.min(self.left);
        let page = self.storage.letters(&self.query).await?;
        self.more = page.len() == self.query.limit;
        self.left -= page.len();
        self.query.after = page.last().map_or(self.query.after, |kept| Some(kept.letter.id));
        Ok(page)
    }

    /// Whether letters may be left beyond the limit.
    async fn is_cut(&mut self) -> Result<bool, StoreError> {
        self.left = 1;
        Ok(!self.next().await?.is_empty())
    }
}

async fn ls(args: &ListArgs, global: &Global) -> Result<String, Failure> {
    check_count("--limit", args.limit, 1, MAX_LETTERS)?;
    let after = args.after.as_deref().map(letter_id).transpose()?;
    let state = match args.state {
        LetterState::All => None,
        state => state.to_possible_value().map(|value| value.get_name().to_owned()),
    };
    let query = LetterQuery { after, state, ..args.filter.query()? };
    let storage = open(global).await?;
    let mut pages = LetterPages::new(&*storage, query, args.limit);
    let (mut rows, mut values) = (Vec::new(), Vec::new());
    loop {
        let page = pages.next().await?;
        if page.is_empty() {
            break;
        }
        match global.json {
            true => values.extend(page.iter().map(value)),
            false => rows.extend(page.iter().map(row)),
        }
        progress::describe(&format!("reading dead letters: {}", rows.len()));
    }
    let last = pages.query.after;
    let next = if pages.is_cut().await? { last.map(|id| id.to_string()) } else { None };
    Ok(global.show(&json!({ "letters": values, "next_after": next }), || {
        if rows.is_empty() {
            to_stderr("no dead letter matches");
        }
        if let Some(next) = &next {
            to_stderr(&format!("there are more: continue with --after {next}"));
        }
        let heads = ["ID", "STATE", "POSTED", "SOURCE", ">ATTEMPTS", ">BYTES", "ERROR"];
        table(heads, rows)
    }))
}

async fn show(id: &str, raw: bool, global: &Global) -> Result<String, Failure> {
    if raw && global.json {
        return Err(Failure::Usage("--raw and --json exclude each other".to_owned()));
    }
    let kept = find(&*open(global).await?, letter_id(id)?).await?;
    if raw {
        return Ok(kept.letter.envelope);
    }
    let mut whole = value(&kept);
    whole["envelope"] = serde_json::from_str(&kept.letter.envelope).unwrap_or_default();
    whole["envelope_text"] = kept.letter.envelope.as_str().into();
    Ok(global.show(&whole, || describe(&kept)))
}

fn source(kept: &StoredLetter) -> String {
    let letter = &kept.letter;
    shown(&format!("{}/{}/{}", letter.channel, letter.provider, letter.endpoint_identity))
}

fn error(kept: &StoredLetter) -> String {
    shown(&format!("{}: {}", kept.letter.error_class, kept.letter.reason))
}

fn row(kept: &StoredLetter) -> [String; 7] {
    [
        kept.letter.id.to_string(),
        kept.state.clone(),
        at(kept.posted_at),
        source(kept),
        kept.letter.attempts.to_string(),
        kept.letter.envelope.len().to_string(),
        error(kept),
    ]
}

fn value(kept: &StoredLetter) -> Value {
    let mut value = view::letter(kept);
    value["bytes"] = kept.letter.envelope.len().into();
    value
}

fn describe(kept: &StoredLetter) -> String {
    let letter = &kept.letter;
    let text = |text: &Option<String>| text.as_deref().map(shown);
    let ended = kept.resolved_at.map(|ended| {
        let by = or_dash(text(&kept.resolved_by));
        format!("{} by {by}: {}", at(ended), or_dash(text(&kept.resolution)))
    });
    fields([
        ("letter", Some(letter.id.to_string())),
        ("state", Some(kept.state.clone())),
        ("source", Some(source(kept))),
        ("event", text(&letter.external_event_id)),
        ("error", Some(error(kept))),
        ("attempts", Some(letter.attempts.to_string())),
        ("posted", Some(format!("{} ({})", at(kept.posted_at), ago(kept.posted_at)))),
        ("duty", text(&kept.duty)),
        ("token", text(&kept.token_id)),
        ("ended", ended),
        ("request", kept.request_id.map(|id| id.to_string())),
        ("bytes", Some(letter.envelope.len().to_string())),
        ("envelope", Some(shown(&letter.envelope))),
    ])
}
