//! Command-line arguments.
//!
//! Nothing here derives `Debug`: the store URL may carry a password.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{FromArgMatches, Parser, Subcommand, ValueEnum};
use serde::Serialize;
use tenure_core::guarantee::Level;
use tenure_core::{GroupName, Store, StoreError};
use tenure_duty::process;
use tenure_store::{IfAbsent, StoreUrl};
use tenure_switchboard::token::Environment;

use crate::bucket;
use crate::config::{self, note_warnings};
use crate::cron;
use crate::env;
use crate::failure::{self, Failure};
use crate::guard::GuardArgs;
use crate::help;
use crate::identity::IdentityCommand;
use crate::operate::{apply, audit, drain, evict, explain, pause, pin, plan, share, top};
use crate::output::report;
use crate::paint::{self, ColorArg};
use crate::run::args::{PollArgs, RunCommandArgs};
use crate::switchboard::{beat, channel, connectors, dead, fence, serve, token};
use crate::{checkpoint, hold};

pub(crate) const DEFAULT_STORE: &str = "sqlite:tenure.db";

const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  refused or failed; the message says what was left unchanged
  2  bad usage: a command, an option or a value is invalid
  3  outcome unknown: the change may have happened
  5  checkpoint: the duty has no checkpoint yet";

const RUN_EXIT_CODES: &str = "\
Exit codes:
  that of the command, or 128 plus the number of the signal that ended it
  1    with --no-wait: the duty is held by another instance (ST025)
  2    bad usage
  125  tenure itself failed
  126  the command cannot be started
  127  the command was not found";

/// Run any process as replicas: one holder per duty, failover, events exactly once
#[derive(Parser)]
#[command(name = "tenure", version, after_help = EXIT_CODES, disable_help_subcommand = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: TenureCommand,
}

/// Options of every command.
#[derive(clap::Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Store URL: file:PATH, sqlite:PATH, postgres://..., redis://... or etcd://...
    // Text, parsed later: clap would repeat an invalid URL, which may hold a password.
    #[arg(long, global = true, value_name = "URL", env = env::STORE, default_value = DEFAULT_STORE)]
    pub(crate) store: String,
    /// Reason why the store that the environment means is unknown.
    #[arg(skip)]
    store_error: Option<StoreError>,
    /// Names of the options on the command line.
    #[arg(skip)]
    typed: Vec<String>,
    /// Print output as one JSON document, and errors as JSON on standard error
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Colours: auto is on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value = "auto")]
    color: ColorArg,
}

impl Global {
    /// Parses the URL of the store.
    pub(crate) fn url(&self) -> Result<StoreUrl, StoreError> {
        self.store_error.clone().map_or_else(|| StoreUrl::parse(&self.store), Err)
    }

    /// Whether an option was given on the command line.
    pub(crate) fn is_typed(&self, option: &str) -> bool {
        self.typed.iter().any(|name| name == option)
    }

    /// Opens the store, which must exist.
    pub(crate) async fn open(&self) -> Result<Arc<dyn Store>, StoreError> {
        self.url()?.open(IfAbsent::Refuse, process::entropy()).await
    }

    /// Opens the store, which must exist, without signature checks.
    pub(crate) async fn open_bare(&self) -> Result<Arc<dyn Store>, StoreError> {
        self.url()?.open_bare(IfAbsent::Refuse, process::entropy()).await
    }

    /// Formats a report as JSON or as text.
    pub(crate) fn show(&self, json: &impl Serialize, text: impl FnOnce() -> String) -> String {
        if self.json { report(json) } else { text() }
    }
}

#[derive(Subcommand)]
pub(crate) enum TenureCommand {
    /// List groups with their duties, holders and members
    Ls {
        /// Show only this group
        group: Option<String>,
        #[command(flatten)]
        trust: TrustArgs,
    },
    /// Show members, duties and recent moves, refreshed continuously
    Top(top::TopArgs),
    /// Explain why a duty is with its holder
    Explain(explain::ExplainArgs),
    /// List what happened: grants, losses, releases, evictions and commits
    Audit(audit::TimelineArgs),
    /// Show which duties would move if members, weights or pins changed
    Plan(plan::PlanArgs),
    /// Apply a plan, if the group has not changed since
    Apply(apply::ApplyArgs),
    /// Run a command while holding a duty; stop it before the lease ends
    #[command(after_help = RUN_EXIT_CODES)]
    Run(RunCommandArgs),
    /// Run a command for each target at an interval, each target on one instance
    Poll(PollArgs),
    /// Run a command at the times of a cron expression, on one host at a time
    #[command(after_help = cron::args::EXIT_CODES)]
    Cron(Box<cron::args::CronArgs>),
    /// Print the bucket of an entity, or choose the next bucket of a rotation
    Bucket(bucket::BucketArgs),
    /// Hand an instance's duties over to other members, and wait until it holds none
    #[command(after_help = drain::EXIT_CODES)]
    Drain(drain::DrainArgs),
    /// Remove an instance from its group and fence it
    Evict(evict::EvictArgs),
    /// Stop work on a duty or a group until it is resumed
    Pause(pause::PauseArgs),
    /// Resume a paused duty or group
    Resume(pause::PauseArgs),
    /// Pin a duty to an instance, name or zone; remove or list pins
    Pin(pin::PinArgs),
    /// Stop assigning duties to an instance; it keeps those that it holds
    Cordon(share::CordonArgs),
    /// Set an instance's share of the duties, relative to other members
    Weight(share::WeightArgs),
    /// Delete duties for good, with their checkpoints and histories
    Forget {
        /// Duties to delete, as GROUP/ID
        #[arg(required = true, value_name = "DUTY")]
        duties: Vec<String>,
        /// Print what would happen and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Run the switchboard: ingest events exactly once, track connectors
    Serve(Box<serve::ServeArgs>),
    /// Send a heartbeat, once or at an interval
    Beat(beat::BeatArgs),
    /// Create, list and revoke switchboard tokens
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// List or reset the epochs that the switchboard has seen
    #[command(subcommand)]
    Fence(fence::FenceCommand),
    /// List, add and remove channels of the switchboard
    #[command(subcommand)]
    Channel(channel::ChannelCommand),
    /// List, replay and discard dead letters: events that connectors gave up
    #[command(subcommand)]
    Dead(dead::DeadCommand),
    /// List connectors and their state; archive or delete them
    #[command(subcommand)]
    Connectors(connectors::ConnectorCommand),
    /// Back up and restore a store, adopt a restored one, set how much history is kept
    #[command(subcommand)]
    Store(crate::store::StoreCommand),
    /// Create the store, or update its schema
    Migrate {
        /// Print the SQL script instead of running it; needs no connection
        #[arg(long)]
        print: bool,
    },
    /// Read, write, verify, rewind or move checkpoints
    Checkpoint {
        #[command(flatten)]
        signing: SigningArgs,
        #[command(subcommand)]
        command: checkpoint::CheckpointCommand,
    },
    /// Ask about the hold that this command runs under
    #[command(subcommand)]
    Hold(hold::HoldCommand),
    /// Report which guarantee the store gives with its current settings
    Doctor {
        /// Minimum guarantee; the command fails below it
        #[arg(long, value_name = "LEVEL", value_parser = words(Level::ALL, Level::as_str))]
        require: Option<Level>,
        #[command(flatten)]
        trust: TrustArgs,
    },
    /// Create and show the keys with which instances sign
    #[command(subcommand)]
    Identity(IdentityCommand),
    /// Internal: end the commands of `run` and `poll` in time
    #[command(hide = true)]
    Guard(GuardArgs),
    /// Explain an error code, or list all codes
    Errors {
        /// Error code, such as ST002; all codes if omitted
        code: Option<String>,
    },
    /// Print the values of options and their sources, or check a configuration file
    Config(config::ConfigArgs),
    /// Print a shell completion script
    Completions {
        /// Shell to print the script for
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write one per command
    Man {
        /// Write tenure.1, tenure-ls.1 and so on to this directory
        #[arg(long, value_name = "PATH")]
        dir: Option<PathBuf>,
    },
}

/// Parses `500ms`, `30s`, `1m30s`, `2h`, `1d`; a day has 24 hours.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let days = jiff::SpanRelativeTo::days_are_24_hours();
    let span = text.parse::<jiff::Span>().and_then(|span| span.to_duration(days));
    let time = span.map_err(|_| {
        "a time is a number and a unit, as in 500ms, 30s, 1m30s, 2h or 90d".to_owned()
    })?;
    time.try_into().map_err(|_| "a time cannot be negative".to_owned())
}

/// Signing and encryption of checkpoints.
#[derive(clap::Args)]
#[command(next_help_heading = "Keys")]
pub(crate) struct SigningArgs {
    /// Signing and verification of checkpoints
    #[arg(long, value_enum, env = env::SIGNING, default_value = "off")]
    pub(crate) signing: SigningMode,
    /// File with signing keys, one per line: ID sign|verify|retired HEX
    #[arg(long, value_name = "PATH", env = env::SIGNING_KEYS_FILE)]
    pub(crate) signing_keys_file: Option<PathBuf>,
    /// Encrypt checkpoints with the keys in this file, one per line: ID encrypt|decrypt HEX
    #[arg(long, value_name = "PATH", env = env::ENCRYPTION_KEYS_FILE)]
    pub(crate) encryption_keys_file: Option<PathBuf>,
    /// Sign sessions and checkpoints with the private key in this file (Ed25519, PEM)
    #[arg(long, value_name = "PATH", env = env::IDENTITY_KEY)]
    pub(crate) identity_key: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
}

/// Instances to trust.
#[derive(clap::Args)]
pub(crate) struct TrustArgs {
    /// Trust only instances whose public keys are in this file, one per line: NAME KEY
    #[arg(long, value_name = "PATH", env = env::TRUSTED_IDENTITIES)]
    pub(crate) trusted_identities: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum SigningMode {
    /// Neither sign nor verify
    Off,
    /// Sign on write; accept unsigned checkpoints on read
    Write,
    /// Sign on write; require a valid signature on read
    Require,
}

/// Parser for the names of a fixed set of values.
pub(crate) fn words<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let find = move |text: String| all.iter().copied().find(|value| name(*value) == text);
    PossibleValuesParser::new(all.iter().map(|value| name(*value)))
        .try_map(move |text| find(text).ok_or("not one of the names"))
}

/// Parses the arguments of this process, with values from the environment and the configuration
/// file. Prints errors, without possible passwords, and returns the exit code.
pub(crate) fn parse() -> Result<Args, ExitCode> {
    let words: Vec<OsString> = std::env::args_os().collect();
    paint::choose_by_words(&words);
    let layers = config::layers(&words).map_err(|failure| {
        let mut options = words.iter().take_while(|word| *word != "--");
        failure.report(options.any(|word| word == "--json"))
    })?;
    paint::choose_by_words(&layers.words);
    note_warnings(&layers.warnings);
    let parse = || {
        let matches = help::command().try_get_matches_from(&layers.words)?;
        Args::from_arg_matches(&matches)
    };
    let mut args = parse().map_err(|error: clap::Error| {
        let mut usage = UsageError::new(&error, &layers.words);
        if usage.is_error {
            usage.text.push_str(&layers.note());
        }
        failure::of_usage(&usage)
    })?;
    paint::choose(args.global.color, args.global.json);
    args.global.typed = layers.typed();
    args.global.store_error = layers.store_error;
    Ok(args)
}

/// Output of clap: help, version, or a usage error.
pub(crate) struct UsageError {
    pub(crate) text: String,
    pub(crate) is_error: bool,
}

impl UsageError {
    pub(crate) fn new(error: &clap::Error, words: &[OsString]) -> Self {
        let plain = error.render().to_string();
        let mut text = plain.clone();
        if error.use_stderr() {
            // clap repeats a misplaced store URL: the whole word, or the part after `=`.
            for word in words.iter().map(|word| word.to_string_lossy()) {
                let value = word.split_once('=').map_or("", |(_, value)| value);
                for part in [&*word, value].into_iter().filter(|part| may_be_secret(part)) {
                    text = text.replace(part, NOT_SHOWN);
                }
            }
            // The user did not type the value of a variable, and it may be meant for another one.
            let keys = [env::SIGNING_KEYS_FILE, env::ENCRYPTION_KEYS_FILE];
            let keys = keys.into_iter().chain([env::IDENTITY_KEY, env::TRUSTED_IDENTITIES]);
            let ours = [env::STORE, env::SIGNING].into_iter().chain(keys);
            let ours = ours.chain(env::SECRETS).chain(env::SERVE).chain(env::BEAT);
            let values = ours.chain(env::BUCKET).filter_map(std::env::var_os);
            for value in values.filter(|value| !value.is_empty()) {
                text = hide_value(&text, &value.to_string_lossy());
            }
        }
        let is_error = error.use_stderr();
        let has_colors = if is_error { paint::is_on_stderr() } else { paint::is_on_stdout() };
        // Values are found in plain text only: with something to hide, the text stays plain.
        if has_colors && text == plain {
            text = error.render().ansi().to_string();
        }
        Self { text, is_error }
    }
}

/// Hides a value where clap quotes it. Without quotes, only a possible secret is hidden: a value
/// such as `on` is also part of other words.
fn hide_value(text: &str, value: &str) -> String {
    let text = text.replace(&format!("'{value}'"), NOT_SHOWN);
    if may_be_secret(value) { text.replace(value, NOT_SHOWN) } else { text }
}

/// Replacement for a word that may be secret.
pub(crate) const NOT_SHOWN: &str = "(not shown)";

/// Number of consecutive hexadecimal digits that may be a key.
const KEY_DIGITS: usize = 32;

/// Whether a word may hold a password or a key.
pub(crate) fn may_be_secret(word: &str) -> bool {
    word.contains("://") || word.contains('@') || may_be_key(word) || may_be_token(word)
}

/// Quotes a word of the command line, unless it may be secret.
pub(crate) fn quoted(word: &str) -> String {
    if may_be_secret(word) { NOT_SHOWN.to_owned() } else { format!("{word:?}") }
}

/// Whether a word may hold a token of the switchboard.
pub(crate) fn may_be_token(word: &str) -> bool {
    Environment::ALL.iter().any(|environment| word.contains(&format!("sw_{environment}_")))
}

/// Whether a word may hold a signing or encryption key.
pub(crate) fn may_be_key(word: &str) -> bool {
    word.split(|c: char| !c.is_ascii_hexdigit()).any(|digits| digits.len() >= KEY_DIGITS)
}

/// Parses the name of a group or a duty. A URL in its place is refused and not repeated.
///
/// A duty's id may contain `@`, as in an account's address. In the name of a group, an `@` after a
/// colon looks like `USER:PASSWORD@HOST` and is written `%40`.
pub(crate) fn name<T, E: Into<Failure>>(
    text: &str,
    read: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, Failure> {
    let group = text.split_once('/').map_or(text, |(group, _)| group);
    let login = group.split_once(':').is_some_and(|(_, rest)| rest.contains('@'));
    if text.contains("://") || login {
        return Err(Failure::Usage(format!(
            "{NOT_SHOWN} is not the name of a group or a duty; it looks like a URL, and a store \
             is given by --store or {} (in the name of a group, write @ as %40)",
            env::STORE
        )));
    }
    read(text).map_err(Into::into)
}

/// Parses the name of a group, and refuses a duty.
pub(crate) fn group_name(text: &str) -> Result<GroupName, Failure> {
    let group = name(text, GroupName::unescape)?;
    match text.contains('/') {
        false => Ok(group),
        true => Err(Failure::Usage(format!(
            "{text:?} is a duty: give its group, the part before the / (in a name, write / as %2F)"
        ))),
    }
}

/// Checks the path of a file. A URL in its place is refused and not repeated.
pub(crate) fn path(given: &Path) -> Result<PathBuf, Failure> {
    if given.to_string_lossy().contains("://") {
        return Err(Failure::Usage(format!("{NOT_SHOWN} is not a file name; it looks like a URL")));
    }
    Ok(given.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }

    const KEY_LINE: &str =
        "s3cret sign 5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e";

    #[test]
    fn a_url_in_the_wrong_place_is_not_repeated() {
        for words in [
            &["tenure", "postgres://me:s3cret@h/db"][..],
            &["tenure", "migrate", "postgres://me:s3cret@h/db"],
            &["tenure", "ls", "a", "me:s3cret@h"],
            &["tenure", "ls", "--stor=postgres://me:s3cret@h/db"],
            &["tenure", "ls", "--json=postgres://me:s3cret@h/db"],
            &["tenure", "checkpoint", "verify", "--signing", KEY_LINE],
        ] {
            let words: Vec<OsString> = words.iter().map(Into::into).collect();
            let error = Args::try_parse_from(&words).err().expect("bad usage");
            let usage = UsageError::new(&error, &words);
            assert!(usage.is_error);
            assert!(!usage.text.contains("s3cret"), "{}", usage.text);
        }
    }

    #[test]
    fn a_time_is_read_as_people_write_it() {
        for (text, ms) in [
            ("500ms", 500),
            ("1.5s", 1_500),
            ("90s", 90_000),
            ("1m30s", 90_000),
            ("1m 30s", 90_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("1d12h", 129_600_000),
            ("2w", 1_209_600_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "30", "s", "-5s", "1 parsec", "1mo"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_told_from_urls() {
        let whole = |text: &str| Ok::<_, Failure>(text.to_owned());
        for text in ["poll", "mail/gmail:user:a@b", "a:b/c", "a@b/c:d@e", "mail%40a:b", "a:b%40c"] {
            assert_eq!(name(text, whole).unwrap(), text);
        }
        for text in ["postgres://h/db", "g/redis://h", "me:s3cret@h", ":s3cret@h/0", "p:u:s3cret@h"]
        {
            let Err(Failure::Usage(what)) = name(text, whole) else { panic!("{text}") };
            assert!(!what.contains(text), "{what}");
        }
    }

    #[test]
    fn a_variable_is_hidden_and_other_words_are_not() {
        let text = "invalid value 'on' for '--signing <SIGNING>' or the option";
        assert_eq!(
            hide_value(text, "on"),
            "invalid value (not shown) for '--signing <SIGNING>' or the option"
        );
        let key = format!("k {}", "5e".repeat(16));
        assert_eq!(hide_value(&format!("bad {key}"), &key), "bad (not shown)");
    }
}
