//! Command-line arguments.
//!
//! Nothing here derives `Debug`: the store URL may carry a password.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use tenure_core::GroupName;
use tenure_core::guarantee::Level;
use tenure_switchboard::token::Environment;

use crate::bucket;
use crate::env;
use crate::failure::Failure;
use crate::guard::GuardArgs;
use crate::observe::ObserveArgs;
use crate::operate::{apply, drain, evict, explain, pause, pin, plan, share, top};
use crate::switchboard::{beat, channel, connectors, fence, serve, token};

const DEFAULT_STORE: &str = "sqlite:tenure.db";

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  refused or failed; the message says what was kept
  2  bad usage: a command, an option or a value that cannot be used
  3  outcome unknown; it may have happened
  5  checkpoint: the duty has none yet";

const RUN_EXIT_CODES: &str = "\
Exit codes:
  the command's own, or 128 and the number of the signal that ended it
  1    with --no-wait: somebody else holds the duty (ST025), and nothing else
  2    bad usage
  125  tenure itself failed; the message says how
  126  the command cannot be started
  127  the command is not there";

/// Run any process that polls, ingests or works as many replicas
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
pub(crate) struct Global {
    /// The store: file:PATH, sqlite:PATH, postgres://..., redis://... or etcd://...
    // Text, parsed later: clap would repeat an invalid URL, which may hold a password.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = env::STORE,
        hide_env_values = true,
        default_value = DEFAULT_STORE
    )]
    pub(crate) store: String,
    /// Whether the store was given on the command line.
    #[arg(skip)]
    pub(crate) store_given: bool,
    /// Print one JSON document; errors too, to standard error
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Subcommand)]
pub(crate) enum TenureCommand {
    /// Show groups: their duties, who holds them, and their members
    Ls {
        /// Only this group, as it is printed
        group: Option<String>,
    },
    /// Show members, duties and moves as they change
    Top(top::TopArgs),
    /// Say why a duty is where it is: what speaks for and against each member
    Explain(explain::ExplainArgs),
    /// Say what would move if members came or went, or had other weights or pins
    Plan(plan::PlanArgs),
    /// Do what was planned, if all is as it was
    Apply(apply::ApplyArgs),
    /// Hold a duty around any program: wait for it, run the command, end it in time
    #[command(after_help = RUN_EXIT_CODES)]
    Run(RunCommandArgs),
    /// Run a command once per target and interval, each target on one instance
    Poll(PollArgs),
    /// Say which bucket an entity is in, or which bucket comes next
    Bucket(bucket::BucketArgs),
    /// Take the duties of an instance to the others, and wait until it holds nothing
    #[command(after_help = drain::EXIT_CODES)]
    Drain(drain::DrainArgs),
    /// Put an instance out of its group: it cannot renew, and not come back
    Evict(evict::EvictArgs),
    /// Stop work on a duty, or on a whole group, until it is resumed
    Pause(pause::PauseArgs),
    /// Go on with a duty or a group that was paused
    Resume(pause::PauseArgs),
    /// Say where a duty has to be, take that back, or list the pins of a group
    Pin(pin::PinArgs),
    /// Give an instance nothing more; it keeps what it has
    Cordon(share::CordonArgs),
    /// Say how much an instance gets beside the others, or take that back
    Weight(share::WeightArgs),
    /// Forget duties that are gone for good: their holds, checkpoints and histories
    Forget {
        /// The duties, as they are printed: GROUP/ID
        #[arg(required = true, value_name = "DUTY")]
        duties: Vec<String>,
        /// Say what would happen and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Take events in over HTTP: each takes effect once
    Serve(Box<serve::ServeArgs>),
    /// Say that a connector lives: one heartbeat, or one again and again
    Beat(beat::BeatArgs),
    /// Make, look at and revoke the tokens of the switchboard
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Look at what the switchboard knows of holds, or forget it
    #[command(subcommand)]
    Fence(fence::FenceCommand),
    /// List, add and remove the channels that the switchboard takes events from
    #[command(subcommand)]
    Channel(channel::ChannelCommand),
    /// Look at connectors and whether they live; put one away, or remove it
    #[command(subcommand)]
    Connectors(connectors::ConnectorCommand),
    /// Take a store over, or say how much it keeps
    #[command(subcommand)]
    Store(crate::store::StoreCommand),
    /// Make the store, or update its schema
    Migrate {
        /// Print the script instead; needs no connection and changes nothing
        #[arg(long)]
        print: bool,
    },
    /// Look at checkpoints, take one back, or take them to another store
    Checkpoint {
        #[command(flatten)]
        signing: SigningArgs,
        #[command(subcommand)]
        command: CheckpointCommand,
    },
    /// Say what the store can promise with its live settings, and what to change
    Doctor {
        /// The least that will do; below it the command fails
        #[arg(long, value_name = "LEVEL", value_parser = levels())]
        require: Option<String>,
    },
    /// What `run` and `poll` start to end commands in time
    #[command(hide = true)]
    Guard(GuardArgs),
    /// Explain an error code, or list all of them
    Errors {
        /// The code, such as ST002
        code: Option<String>,
    },
    /// Print a script that makes a shell complete the words of this command
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write one for every command
    Man {
        /// Write tenure.1, tenure-ls.1 and so on into this folder
        #[arg(long, value_name = "PATH")]
        dir: Option<PathBuf>,
    },
}

#[derive(clap::Args)]
pub(crate) struct RunCommandArgs {
    /// The duty, as GROUP/NAME
    #[arg(long, value_name = "GROUP/NAME")]
    pub(crate) duty: String,
    /// Do not wait for the duty or the store: fail if somebody else holds the duty
    #[arg(long)]
    pub(crate) no_wait: bool,
    #[command(flatten)]
    pub(crate) member: MemberArgs,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(clap::Args)]
pub(crate) struct PollArgs {
    /// The targets: redis://..., postgres://..., sqlite:..., http://..., file:... or list:...
    // Text, parsed later: clap would repeat an invalid URL, which may hold a password.
    #[arg(long, value_name = "URL", env = env::TARGETS, hide_env_values = true)]
    pub(crate) targets: String,
    /// The group of instances that share the targets
    #[arg(long, default_value = "poll")]
    pub(crate) group: String,
    /// How often each target is polled
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) every: Duration,
    /// How long a poll may take
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// How often the list of targets is read
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) list_every: Duration,
    /// The most polls at a time
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) jobs: usize,
    #[command(flatten)]
    pub(crate) member: MemberArgs,
    /// The command and its arguments; {} in them is the target
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// Options of a member of a group.
#[derive(clap::Args)]
pub(crate) struct MemberArgs {
    /// How long the store keeps the duty for a process that it does not hear from
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) ttl: Duration,
    /// How long before its time is over the command gets TERM; then comes KILL [default: a sixth of
    /// the TTL, 5s at most]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) grace: Option<Duration>,
    /// How long work may take to end when it is asked to [default: half of the TTL]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) drain: Option<Duration>,
    /// The least that the store has to promise; below it the command fails
    #[arg(long, value_name = "LEVEL", value_parser = levels())]
    pub(crate) require: Option<String>,
    /// Run commands in a PID namespace, so that nothing of them outlives tenure however it ends
    #[arg(long)]
    pub(crate) isolate: bool,
    /// Where this runs: what would best be done here comes here first
    #[arg(long, value_name = "LABEL")]
    pub(crate) zone: Option<String>,
    /// A name that outlives this process, for pins
    #[arg(long, value_name = "LABEL")]
    pub(crate) name: Option<String>,
    /// What this was deployed as: while two revisions run, duties move only because somebody leaves
    #[arg(long, value_name = "LABEL")]
    pub(crate) revision: Option<String>,
    /// The share beside the others; 0 takes nothing
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) weight: u32,
    #[command(flatten)]
    pub(crate) signing: SigningArgs,
    #[command(flatten)]
    pub(crate) watch: ObserveArgs,
}

/// Parses `500ms`, `30s`, `1m30s`, `2h`, `1d`; a day has 24 hours.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let days = jiff::SpanRelativeTo::days_are_24_hours();
    let span = text.parse::<jiff::Span>().and_then(|span| span.to_duration(days));
    let time = span.map_err(|_| {
        "a time is a number and a unit, as in 500ms, 30s, 1m30s, 2h or 90d".to_owned()
    })?;
    time.try_into().map_err(|_| "a time is not negative".to_owned())
}

/// Signing of checkpoints.
#[derive(clap::Args)]
pub(crate) struct SigningArgs {
    /// Whether checkpoints are signed and verified
    #[arg(long, global = true, value_enum, env = env::SIGNING, default_value = "off")]
    pub(crate) signing: SigningMode,
    /// A file with keys, one per line: ID sign|verify|retired HEX
    #[arg(long, global = true, value_name = "PATH", env = env::SIGNING_KEYS_FILE)]
    pub(crate) signing_keys_file: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum SigningMode {
    /// Nothing is signed or verified
    Off,
    /// What is written is signed; what is read need not be
    Write,
    /// What is read must have a good signature, too
    Require,
}

#[derive(Subcommand)]
pub(crate) enum CheckpointCommand {
    /// Print the newest checkpoint, byte for byte
    Get {
        /// The duty as GROUP/ID; with --schema shards the GROUP
        name: String,
        /// The document to print
        #[arg(long, value_enum, default_value = "plain")]
        schema: Schema,
    },
    /// List the checkpoints that are kept, newest first
    History {
        /// The duty as GROUP/ID
        duty: String,
    },
    /// Check the signatures of checkpoints and of their histories
    Verify {
        /// Only these duties (GROUP/ID) or groups (GROUP)
        names: Vec<String>,
    },
    /// Make the document of an older version the newest again
    Rewind {
        /// The duty as GROUP/ID
        duty: String,
        /// The version, as `tenure checkpoint history` shows it
        #[arg(long, value_name = "VERSION")]
        to: u64,
        /// Take the duty from its holder
        #[arg(long)]
        force: bool,
        /// Only say what would be done
        #[arg(long)]
        dry_run: bool,
    },
    /// Take checkpoints to another store; run it again if it was interrupted
    Move(MoveArgs),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Schema {
    /// The cursor alone
    Plain,
    /// The cursor and the lease under which it is written
    Lease,
    /// The cursors of all shards of a group
    Shards,
}

#[derive(clap::Args)]
pub(crate) struct MoveArgs {
    /// The store to move from
    #[arg(value_name = "FROM")]
    pub(crate) from: String,
    /// The store to move to; it is made if it is not there
    #[arg(value_name = "TO")]
    pub(crate) to: String,
    /// Only these duties (GROUP/ID) or groups (GROUP)
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// The name in the other store, for one duty or with --merge; with --schema shards a GROUP
    #[arg(long = "as", value_name = "GROUP/ID")]
    pub(crate) rename: Option<String>,
    /// Put all into one cursor: the one that came least far
    #[arg(long, requires = "rename")]
    pub(crate) merge: bool,
    /// What the documents in FROM are
    #[arg(long, value_enum, default_value = "plain")]
    pub(crate) schema: Schema,
    /// Take duties from their holders, and replace what TO has
    #[arg(long)]
    pub(crate) force: bool,
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Refuse unless TO gives this guarantee
    #[arg(long, value_name = "LEVEL", value_parser = levels())]
    pub(crate) require: Option<String>,
}

pub(crate) fn levels() -> PossibleValuesParser {
    PossibleValuesParser::new(Level::ALL.map(Level::as_str))
}

/// Parses the arguments of this process. Usage errors do not repeat possible passwords.
pub(crate) fn parse() -> Result<Args, UsageError> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let parse = || {
        let matches = Args::command().try_get_matches_from(&words)?;
        let mut args = Args::from_arg_matches(&matches)?;
        args.global.store_given = matches.value_source("store") == Some(ValueSource::CommandLine);
        Ok(args)
    };
    parse().map_err(|error: clap::Error| UsageError::new(&error, &words))
}

/// Output of clap: help, version, or a usage error.
pub(crate) struct UsageError {
    pub(crate) text: String,
    pub(crate) is_error: bool,
}

impl UsageError {
    fn new(error: &clap::Error, words: &[OsString]) -> Self {
        let mut text = error.render().to_string();
        if error.use_stderr() {
            // A store URL in the wrong place would be repeated by clap, whole or after its `=`.
            for word in words.iter().map(|word| word.to_string_lossy()) {
                let value = word.split_once('=').map_or("", |(_, value)| value);
                for part in [&*word, value].into_iter().filter(|part| may_be_secret(part)) {
                    text = text.replace(part, NOT_SHOWN);
                }
            }
            // What stands in a variable was not typed, and may be meant for another one.
            let ours = [env::STORE, env::SIGNING, env::SIGNING_KEYS_FILE].into_iter();
            let ours = ours.chain(env::SECRETS).chain(env::SERVE).chain(env::BEAT);
            let ours = ours.chain(env::BUCKET);
            let ours = ours.filter_map(std::env::var_os);
            for value in ours.filter(|value| !value.is_empty()) {
                text = hide_value(&text, &value.to_string_lossy());
            }
        }
        Self { text, is_error: error.use_stderr() }
    }
}

/// Hides a value as clap quotes it; without quotes only if it can be no other word.
fn hide_value(text: &str, value: &str) -> String {
    let text = text.replace(&format!("'{value}'"), NOT_SHOWN);
    if may_be_secret(value) { text.replace(value, NOT_SHOWN) } else { text }
}

/// Replaces a word that may be secret.
pub(crate) const NOT_SHOWN: &str = "(not shown)";

/// Hexadecimal digits in a row that may be a key.
const KEY_DIGITS: usize = 32;

/// Whether a word may hold a password or a key.
pub(crate) fn may_be_secret(word: &str) -> bool {
    word.contains("://") || word.contains('@') || may_be_key(word) || may_be_token(word)
}

/// Whether a word may hold a token of the switchboard.
pub(crate) fn may_be_token(word: &str) -> bool {
    let kinds = Environment::ALL.map(|environment| format!("sw_{}_", environment.as_str()));
    kinds.iter().any(|kind| word.contains(kind.as_str()))
}

/// Whether a word may hold a signing key.
pub(crate) fn may_be_key(word: &str) -> bool {
    word.split(|c: char| !c.is_ascii_hexdigit()).any(|digits| digits.len() >= KEY_DIGITS)
}

/// Parses the name of a group or a duty. A URL in its place is refused and not repeated.
///
/// An `@` is fine in a duty's id, which may be an account's address. In the name of a group,
/// behind a colon, it looks like `USER:PASSWORD@HOST`; there `@` is written `%40`.
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
            "{text:?} is a duty, and a group is meant: what stands before the / (in a name, / is \
             written %2F)"
        ))),
    }
}

/// Checks the path of a file. A URL in its place is refused and not repeated.
pub(crate) fn path(given: &Path) -> Result<PathBuf, Failure> {
    if given.to_string_lossy().contains("://") {
        return Err(Failure::Usage(format!("{NOT_SHOWN} is no file; it looks like a URL")));
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
