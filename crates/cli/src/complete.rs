//! Shell completion: commands and options from their definition, names from the store.
//!
//! The script of a shell runs `tenure` with the line so far in the environment or after `--`. No
//! error is printed, and a store that does not exist is not created.
//!
//! Why: docs/decisions/0049-completions-come-from-the-binary.md

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{Result as IoResult, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::{Args as _, Command};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, complete};
use clap_complete::env::{Elvish, EnvCompleter, Fish, Powershell, Shells, Zsh};
use tenure_core::store::MAX_BATCH;
use tenure_core::{DutyKey, GroupName, Store};
use tenure_duty::process;
use tenure_operate::{StoredGroup, find};
use tenure_store::{IfAbsent, StoreUrl};
use tokio::time::timeout;

use crate::args::Global;
use crate::config;
use crate::env;
use crate::help;
use crate::output::write_stdout;

/// Time for opening and reading the store: the user waits for it.
const TIME_LIMIT: Duration = Duration::from_secs(1);
/// Names that are offered at once.
const MAX_CANDIDATES: usize = 1_000;

const SHELLS: Shells<'static> = Shells(&[&BashLine, &Elvish, &Fish, &Powershell, &Zsh]);

/// Words before the one that is completed.
static WORDS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Kind of names that an argument takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameKind {
    Group,
    Duty,
    GroupOrDuty,
    Checkpoint,
    Instance,
    /// The first word of an operation on an instance: its group, or with `--all-groups` itself.
    GroupOrInstance,
    /// Published name of a member.
    Label,
}

/// Arguments that take names from the store: the command, the argument, and the kind.
const ARGUMENTS: &[(&str, &str, NameKind)] = &[
    ("ls", "group", NameKind::Group),
    ("top", "group", NameKind::Group),
    ("explain", "duty", NameKind::Duty),
    ("explain", "instance", NameKind::Instance),
    ("plan", "group", NameKind::Group),
    ("plan", "leave", NameKind::Instance),
    ("drain", "group", NameKind::GroupOrInstance),
    ("drain", "instance", NameKind::Instance),
    ("evict", "group", NameKind::GroupOrInstance),
    ("evict", "instance", NameKind::Instance),
    ("cordon", "group", NameKind::GroupOrInstance),
    ("cordon", "instance", NameKind::Instance),
    ("weight", "group", NameKind::GroupOrInstance),
    ("weight", "instance", NameKind::Instance),
    ("audit", "of", NameKind::GroupOrDuty),
    ("pause", "name", NameKind::GroupOrDuty),
    ("resume", "name", NameKind::GroupOrDuty),
    ("pin", "duty", NameKind::GroupOrDuty),
    ("pin", "instance", NameKind::Instance),
    ("pin", "name", NameKind::Label),
    ("forget", "duties", NameKind::Duty),
    ("run", "duty", NameKind::Duty),
    ("run", "group", NameKind::Group),
    ("poll", "group", NameKind::Group),
    ("cron", "duty", NameKind::Duty),
    ("cron ls", "group", NameKind::Group),
    ("checkpoint get", "name", NameKind::Checkpoint),
    ("checkpoint put", "words", NameKind::Duty),
    ("checkpoint history", "duty", NameKind::Checkpoint),
    ("checkpoint verify", "names", NameKind::Checkpoint),
    ("checkpoint rewind", "duty", NameKind::Checkpoint),
];

/// Answers a shell that asks for completions; `None` for any other call.
pub(crate) fn answer() -> Option<ExitCode> {
    let shell = std::env::var(env::COMPLETE).ok()?;
    let completer = SHELLS.completer(&shell)?;
    let (words, index) = match std::env::var(env::COMPLETE_LINE) {
        Ok(line) if shell == "bash" => line_words(&line),
        _ => {
            let words: Vec<OsString> =
                std::env::args_os().skip_while(|word| word != "--").skip(1).collect();
            let index = std::env::var("_CLAP_COMPLETE_INDEX").ok();
            let last = words.len().saturating_sub(1);
            let index = index.and_then(|index| index.parse().ok()).map_or(last, |n| last.min(n));
            (words, index)
        }
    };
    if words.is_empty() {
        return Some(ExitCode::SUCCESS);
    }
    WORDS.get_or_init(|| words[..index].to_vec());
    let (folder, mut names) = (std::env::current_dir().ok(), Vec::new());
    let mut command = command_with_names();
    if completer.write_complete(&mut command, words, folder.as_deref(), &mut names).is_ok() {
        // The shell has gone if this fails.
        let _ = write_stdout(&names);
    }
    Some(ExitCode::SUCCESS)
}

/// Returns the script that makes a shell complete the command.
pub(crate) fn script(shell: &str) -> Option<Vec<u8>> {
    let (mut script, completer) = (Vec::new(), program());
    let shell = SHELLS.completer(shell)?;
    let written =
        shell.write_registration(env::COMPLETE, "tenure", "tenure", &completer, &mut script);
    written.is_ok().then_some(script)
}

/// Program that the script runs: its name if it was found by that, or else its path.
fn program() -> String {
    let is_path = |name: &OsString| Path::new(name).components().count() > 1;
    let name = std::env::args_os().next().filter(is_path);
    let path = name.and_then(|_| std::env::current_exe().ok());
    path.map_or_else(|| "tenure".to_owned(), |path| path.to_string_lossy().into_owned())
}

/// Definition of the visible commands. The engine would offer hidden ones if no other fits.
fn command() -> Command {
    let whole = help::command();
    let seen = whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let bare = Command::new("tenure").version(env!("CARGO_PKG_VERSION"));
    let bare = help::with_config(Global::augment_args(bare));
    bare.disable_help_subcommand(true).subcommands(seen)
}

fn command_with_names() -> Command {
    // `mut_arg` would change the order of the arguments.
    fn attach(command: Command, path: &[&str], argument: &'static str, kind: NameKind) -> Command {
        match path {
            [] => command.mut_args(|arg| match arg.get_id() == argument {
                true => arg.add(ArgValueCompleter::new(move |word: &OsStr| kind.candidates(word))),
                false => arg,
            }),
            [first, rest @ ..] => {
                command.mut_subcommand(first, |child| attach(child, rest, argument, kind))
            }
        }
    }
    ARGUMENTS.iter().fold(command(), |command, (path, argument, kind)| {
        attach(command, &path.split(' ').collect::<Vec<_>>(), argument, *kind)
    })
}

impl NameKind {
    fn candidates(self, word: &OsStr) -> Vec<CompletionCandidate> {
        let word = word.to_str().unwrap_or_default();
        let names = from_store(async |store| self.names(&*store, word).await).unwrap_or_default();
        let names = names.into_iter().filter(|name| name.starts_with(word));
        names.take(MAX_CANDIDATES).map(CompletionCandidate::new).collect()
    }

    /// Reads the names of this kind; only those that begin like `word` are needed.
    async fn names(self, store: &dyn Store, word: &str) -> Option<BTreeSet<String>> {
        let groups = store.groups().await.ok()?;
        let all = groups.iter().map(ToString::to_string);
        match self {
            Self::Group => Some(all.collect()),
            Self::Duty => duties(store, &groups, word).await,
            Self::GroupOrDuty if !word.contains('/') && groups.len() > 1 => Some(all.collect()),
            Self::GroupOrDuty => Some(all.chain(duties(store, &groups, word).await?).collect()),
            Self::Checkpoint => checkpoints(store, &groups, word).await,
            Self::GroupOrInstance if !is_given("--all-groups") => Some(all.collect()),
            Self::Instance | Self::GroupOrInstance => instances(store, &groups, true).await,
            Self::Label => instances(store, &groups, false).await,
        }
    }
}

/// Reads the known duties of the groups that a word may begin with.
async fn duties(store: &dyn Store, groups: &[GroupName], word: &str) -> Option<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for group in groups {
        let start = format!("{group}/");
        if !start.starts_with(word) && !word.starts_with(&start) {
            continue;
        }
        let read = StoredGroup::read(store, group).await.ok()?;
        names.extend(read.known_duties().into_iter().map(|duty| format!("{group}/{duty}")));
    }
    Some(names)
}

/// Reads the duties that have a checkpoint, among the first that are known.
async fn checkpoints(
    store: &dyn Store,
    groups: &[GroupName],
    word: &str,
) -> Option<BTreeSet<String>> {
    let names = duties(store, groups, word).await?;
    let names = names.iter().filter(|name| name.starts_with(word));
    let keys: Vec<DutyKey> =
        names.filter_map(|name| name.parse().ok()).take(MAX_BATCH.min(MAX_CANDIDATES)).collect();
    let stored = store.load(&keys).await.ok()?;
    let found = keys.iter().zip(stored).filter(|(_, stored)| stored.is_some());
    Some(found.map(|(key, _)| key.to_string()).collect())
}

/// Reads the names of members, with their ids if `ids` is set: of the groups on the line, or else
/// of all.
async fn instances(store: &dyn Store, groups: &[GroupName], ids: bool) -> Option<BTreeSet<String>> {
    let is_on_line = |group: &&GroupName| {
        let (name, start) = (group.to_string(), format!("{group}/"));
        let words = WORDS.get().into_iter().flatten().filter_map(|word| word.to_str());
        words.into_iter().any(|word| word == name || word.starts_with(&start))
    };
    let on_line: Vec<&GroupName> = groups.iter().filter(is_on_line).collect();
    let groups = if on_line.is_empty() { groups.iter().collect() } else { on_line };
    let mut names = BTreeSet::new();
    for group in groups {
        for member in store.members(group).await.ok()? {
            names.extend(find::name_of(&member).map(|name| name.to_string()));
            names.extend(ids.then(|| member.instance.to_string()));
        }
    }
    Some(names)
}

/// Whether an option stands before the word that is completed.
fn is_given(option: &str) -> bool {
    WORDS.get().is_some_and(|words| words.iter().any(|word| word == option))
}

/// Reads from the store that the line, the environment or the file names.
fn from_store<T>(read: impl AsyncFnOnce(Arc<dyn Store>) -> Option<T>) -> Option<T> {
    let url = store_url()?;
    // One process at a time can open a cursor file: this one could keep a holder out.
    if url.cursor_path().is_some() {
        return None;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let names = runtime.block_on(async {
        let names = async {
            let store = url.open_bare(IfAbsent::Refuse, process::entropy()).await.ok()?;
            read(store).await
        };
        timeout(TIME_LIMIT, names).await.ok().flatten()
    });
    // A call that hangs must not keep the user waiting.
    runtime.shutdown_background();
    names
}

fn store_url() -> Option<StoreUrl> {
    let before = WORDS.get()?;
    // The word in place of the completed one is the value of an option that waits for it.
    let with_word = [&before[..], &["x".into()]].concat();
    let layers = [&with_word, before].into_iter().filter_map(|words| config::layers(words).ok());
    let url = layers.into_iter().find_map(|layers| layers.store_url())?;
    StoreUrl::parse(url.to_str()?).ok()
}

/// Splits a line into words, and returns them with the index of the last: an empty one after a
/// space. With an open quote, it is split at spaces.
fn line_words(line: &str) -> (Vec<OsString>, usize) {
    let plain = || line.split_whitespace().map(str::to_owned).collect();
    let mut words: Vec<String> = shlex::split(line).unwrap_or_else(plain);
    if line.ends_with(char::is_whitespace) && !line.ends_with("\\ ") {
        words.push(String::new());
    }
    let last = words.len().saturating_sub(1);
    (words.into_iter().map(OsString::from).collect(), last)
}

/// Returns the part of a word that bash does not replace: up to its last separator.
fn kept_by_bash<'a>(word: &'a str, breaks: &str) -> &'a str {
    let end = word.rfind(|c| breaks.contains(c)).map_or(0, |at| at + 1);
    word.get(..end).unwrap_or_default()
}

/// bash, which splits words also at `:` and `=`, as in `sqlite:tenure.db`. The script passes the
/// line, and only the part after the last separator is printed.
#[derive(Debug)]
struct BashLine;

impl EnvCompleter for BashLine {
    fn name(&self) -> &'static str {
        "bash"
    }

    fn is(&self, name: &str) -> bool {
        name == "bash"
    }

    fn write_registration(
        &self,
        _variable: &str,
        _name: &str,
        _program: &str,
        completer: &str,
        script: &mut dyn Write,
    ) -> IoResult<()> {
        let completer = shlex::try_quote(completer).unwrap_or(completer.into());
        let text = include_str!("complete.bash").replace("COMPLETER", &completer);
        script.write_all(text.as_bytes())
    }

    fn write_complete(
        &self,
        command: &mut Command,
        words: Vec<OsString>,
        folder: Option<&Path>,
        output: &mut dyn Write,
    ) -> IoResult<()> {
        let breaks = std::env::var(env::COMPLETE_BREAKS).unwrap_or_default();
        let (last, word) = (words.len().saturating_sub(1), words.last().cloned());
        let word = word.unwrap_or_default().to_string_lossy().into_owned();
        let kept = kept_by_bash(&word, &breaks);
        for candidate in complete(command, words, last, folder)? {
            let name = candidate.get_value().to_string_lossy();
            writeln!(output, "{}", name.strip_prefix(kept).unwrap_or(&name))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_that_take_names_exist() {
        let mut whole = command_with_names();
        whole.build();
        for (path, argument, _) in ARGUMENTS {
            let child = |command, name| Command::find_subcommand(command, name);
            let found = path.split(' ').try_fold(&whole, child);
            let mut arguments = found.unwrap().get_arguments();
            let argument = arguments.find(|arg| arg.get_id() == argument).unwrap();
            assert!(argument.get::<ArgValueCompleter>().is_some(), "{path}");
        }
    }

    #[test]
    fn a_line_is_split_as_the_shell_does() {
        let split = |line: &str| {
            let (words, index) = line_words(line);
            (words.into_iter().map(|word| word.into_string().unwrap()).collect::<Vec<_>>(), index)
        };
        let store = ["tenure", "--store", "sqlite:a b.db", "ls", ""].map(str::to_owned);
        assert_eq!(split("tenure --store 'sqlite:a b.db' ls "), (store.to_vec(), 4));
        let words = ["tenure", "dr"].map(str::to_owned).to_vec();
        assert_eq!(split("tenure dr"), (words, 1));
        assert_eq!(split("tenure 'op en").0.len(), 3);
        assert_eq!(split("").0.len(), 0);
    }

    #[test]
    fn bash_keeps_what_is_before_a_separator() {
        let breaks = " \t\n\"'><=;|&(:";
        assert_eq!(kept_by_bash("mail/a:b:c", breaks), "mail/a:b:");
        assert_eq!(kept_by_bash("--leave=web", breaks), "--leave=");
        assert_eq!(kept_by_bash("mail/", breaks), "");
    }
}
