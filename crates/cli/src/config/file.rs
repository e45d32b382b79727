//! `tenure.toml`: finds, reads and checks it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::ensure;
use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};
use tenure_core::{Code, StoreError};
use tenure_store::StoreUrl;
use tenure_targets::TargetsUrl;
use toml::de::{DeTable, DeValue, Error};

use super::layers::{GivenOptions, as_words, commands, is_option, relaxed};
use crate::args::{NOT_SHOWN, may_be_key, may_be_secret, may_be_token, path, quoted};
use crate::failure::Failure;

/// Places of the file, if none is given; the first that exists is read.
const PLACES: [&str; 2] = ["tenure.toml", "/etc/tenure/tenure.toml"];

const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// A configuration file.
pub(super) struct ConfigFile {
    pub(super) name: String,
    pub(super) warnings: Vec<String>,
    pub(super) problems: Vec<ConfigProblem>,
    entries: Vec<ConfigEntry>,
}

/// Values of an option. They may be secret.
pub(super) struct ConfigEntry {
    /// Command whose table has the option.
    command: Vec<String>,
    key: String,
    pub(super) values: Vec<OsString>,
    /// File and line.
    pub(super) place: String,
}

/// A mistake in the file.
#[derive(Debug, PartialEq)]
pub(super) struct ConfigProblem {
    pub(super) line: usize,
    pub(super) text: String,
}

impl ConfigFile {
    /// Reads the given file, or the first that exists in the usual places. An empty name stands for
    /// no file.
    pub(super) fn find(given: Option<&OsStr>) -> Result<Option<Self>, Failure> {
        let is_there = |place: &&str| Path::new(place).symlink_metadata().is_ok();
        let name = match given {
            Some(given) => Some(path(Path::new(given))?),
            None => PLACES.into_iter().find(is_there).map(Into::into),
        };
        let Some(name) = name.filter(|name| !name.as_os_str().is_empty()) else { return Ok(None) };
        let file = Self::read(&name)?;
        let Some(ConfigProblem { line, text }) = file.problems.first() else {
            return Ok(Some(file));
        };
        let more = match file.problems.len() {
            1 => String::new(),
            count => format!(" (and {} more)", count - 1),
        };
        let detail = format!("{}:{line}: {text}{more}", file.name);
        Err(StoreError::refused(Code::BadConfig, detail).into())
    }

    /// Reads a file and finds its problems.
    pub(super) fn read(path: &Path) -> Result<Self, StoreError> {
        let name = path.display().to_string();
        let (text, is_open) = read(path).map_err(|error| {
            StoreError::refused(Code::BadConfig, format!("cannot read {name}: {error:#}"))
        })?;
        let mut file = parse(name, &text);
        let is_secret = |entry: &&ConfigEntry| {
            entry.values.iter().any(|value| is_secret(&value.to_string_lossy()))
        };
        for ConfigEntry { place, key, .. } in
            file.entries.iter().filter(|_| is_open).filter(is_secret)
        {
            let what = "has a secret, and every user can read the file: chmod o-r";
            file.warnings.push(format!("{place}: {key} {what} {}", file.name));
        }
        Ok(file)
    }

    /// Returns the value of an option: from the table of its command, or of a parent if the option
    /// is a global one.
    pub(super) fn get(&self, command: &[String], option: &Arg) -> Option<&ConfigEntry> {
        let applies = |entry: &&ConfigEntry| {
            option.get_long() == Some(&entry.key)
                && command.starts_with(&entry.command)
                && (option.is_global_set() || entry.command == command)
        };
        self.entries.iter().filter(applies).max_by_key(|entry| entry.command.len())
    }
}

/// Returns the content of a file, and whether every user can read it.
fn read(path: &Path) -> anyhow::Result<(String, bool)> {
    let mut text = String::new();
    let kind = path.metadata()?.file_type();
    // Opening a pipe waits for its writer.
    ensure!(kind.is_file() || kind.is_char_device(), "it is not a regular file");
    let file = File::open(path)?;
    let mode = file.metadata()?.permissions().mode();
    file.take(MAX_CONFIG_BYTES + 1).read_to_string(&mut text)?;
    ensure!(text.len() as u64 <= MAX_CONFIG_BYTES, "it is larger than {MAX_CONFIG_BYTES} bytes");
    Ok((text, mode & 0o004 != 0))
}

/// Whether a value has a password, a key or a token.
fn is_secret(value: &str) -> bool {
    let rest = value.split_once("://").map_or("", |(_, rest)| rest);
    let login = rest.split_once('@').map_or("", |(login, _)| login);
    may_be_key(value) || may_be_token(value) || login.contains(':') || rest.contains("password=")
}

/// Reads the text of a file.
fn parse(name: String, text: &str) -> ConfigFile {
    let (table, mut errors) = DeTable::parse_recoverable(text);
    let line = |error: &Error| line(text, error.span().map_or(0, |span| span.start));
    // Further errors in a line follow from the first.
    errors.dedup_by_key(|error| line(error));
    let problem =
        |error: &Error| ConfigProblem { line: line(error), text: error.message().to_owned() };
    let problems: Vec<_> = errors.iter().map(problem).collect();
    let is_whole = problems.is_empty();
    let file = ConfigFile { name, warnings: Vec::new(), problems, entries: Vec::new() };
    let mut reader = TableReader { text, relaxed: without_env(relaxed()), file };
    if is_whole {
        reader.table(table.get_ref(), &[]);
    }
    reader.file.problems.sort_by_key(|problem| problem.line);
    reader.file
}

/// Removes the variables of options: the file is valid or not whatever the environment is.
fn without_env(command: Command) -> Command {
    let command = command.mut_args(|arg| arg.env(Resettable::<clap::builder::OsStr>::Reset));
    command.mut_subcommands(without_env)
}

/// Returns the line of a position, from 1.
fn line(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

struct TableReader<'a> {
    text: &'a str,
    relaxed: Command,
    file: ConfigFile,
}

impl TableReader<'_> {
    /// Reads the table of a command.
    fn table(&mut self, table: &DeTable<'_>, command: &[String]) {
        for (key, value) in table {
            let (line, key) = (line(self.text, key.span().start), key.get_ref().to_string());
            let below = [command, std::slice::from_ref(&key)].concat();
            match value.get_ref() {
                DeValue::Table(table) if self.is_command(&below) => self.table(table, &below),
                value => match self.values(&key, value, command) {
                    Ok(values) => {
                        let (command, place) =
                            (command.to_owned(), format!("{}:{line}", self.file.name));
                        self.file.entries.push(ConfigEntry { command, key, values, place });
                    }
                    Err(text) => self.file.problems.push(ConfigProblem { line, text }),
                },
            }
        }
    }

    /// Lets clap read a command with this word.
    fn given(
        &mut self,
        command: &[String],
        words: Vec<OsString>,
    ) -> Result<GivenOptions, clap::Error> {
        let program = std::iter::once("tenure".into());
        let words = program.chain(command.iter().map(Into::into)).chain(words);
        GivenOptions::read(&mut self.relaxed, &words.collect::<Vec<_>>())
    }

    fn is_command(&mut self, command: &[String]) -> bool {
        let given = self.given(command, Vec::new());
        given.is_ok_and(|given| given.reads_file && given.command == command)
    }

    /// Returns the values of a key, or its problem.
    fn values(
        &mut self,
        key: &str,
        value: &DeValue<'_>,
        command: &[String],
    ) -> Result<Vec<OsString>, String> {
        let given = self.given(command, Vec::new()).map_err(|error| problem(&error))?;
        let option = given.options().find(|option| option.get_long() == Some(key));
        let Some(option) = option.filter(|_| !value.is_table()) else {
            return Err(self.unknown(key, value.is_table(), command));
        };
        let texts = match value {
            DeValue::Array(items) => items.iter().map(|item| text(item.get_ref())).collect(),
            value => text(value).map(|text| vec![text]),
        };
        let texts: Vec<String> =
            texts.ok_or_else(|| format!("{key}: an array cannot be nested"))?;
        let values: Vec<OsString> = texts.iter().map(OsString::from).collect();
        let parsed = self.given(command, as_words(option, &values)).map(drop);
        let parsed = parsed.map_err(|error| problem(&error)).and_then(|()| check_url(key, &texts));
        parsed.map(|()| values).map_err(|what| {
            let shown: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
            format!("{key} = {}: {}", shown.join(", "), without_secrets(what, &texts))
        })
    }

    /// Describes an unknown key or table.
    fn unknown(&mut self, key: &str, is_table: bool, command: &[String]) -> String {
        let word = if is_table { key.to_owned() } else { format!("--{key}") };
        let similar = match self.given(command, vec![word.into()]) {
            Err(error) => suggestion(&error),
            Ok(_) => None,
        };
        let has_key = |command: &Command| {
            command.get_arguments().any(|arg| is_option(arg) && arg.get_long() == Some(key))
        };
        let all = commands(&self.relaxed);
        let others = all.iter().filter(|(_, command)| !is_table && has_key(command)).take(3);
        let others: Vec<String> = others.map(|(name, _)| format!("[{}]", name.join("."))).collect();
        let hint = match similar {
            _ if !others.is_empty() => format!(": it is a key of {}", others.join(", ")),
            Some(similar) => format!(": did you mean {similar}?"),
            None => String::new(),
        };
        let what = if is_table { "table" } else { "key" };
        let place = if command.is_empty() { "" } else { &format!(" in [{}]", command.join(".")) };
        format!("unknown {what} {}{place}{hint}", quoted(key))
    }
}

/// Returns a value as it is written on the command line.
fn text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => {
            let value = i128::from_str_radix(number.as_str(), number.radix());
            Some(value.map_or_else(|_| number.to_string(), |value| value.to_string()))
        }
        DeValue::Float(number) => Some(number.to_string()),
        DeValue::Boolean(is_on) => Some(is_on.to_string()),
        DeValue::Datetime(time) => Some(time.to_string()),
        DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

/// Checks URLs, which clap takes as any text: it would repeat a password.
fn check_url(key: &str, texts: &[String]) -> Result<(), String> {
    texts.iter().try_for_each(|text| match key {
        "store" => StoreUrl::parse(text).map(drop).map_err(|error| error.problem().detail.clone()),
        "targets" => TargetsUrl::parse(text).map(drop).map_err(|error| error.to_string()),
        _ => Ok(()),
    })
}

/// Returns the reason of an error, without the name of the option.
fn problem(error: &clap::Error) -> String {
    match (std::error::Error::source(error), error.get(ContextKind::ValidValue)) {
        (Some(source), _) => source.to_string(),
        (None, Some(ContextValue::Strings(known))) if !known.is_empty() => {
            format!("it takes {}", known.join(", "))
        }
        _ if error.kind() == ErrorKind::ArgumentConflict => "it takes one value".to_owned(),
        _ => error.kind().to_string(),
    }
}

/// Hides values in an error: a parser may repeat them.
fn without_secrets(what: String, texts: &[String]) -> String {
    let secrets = texts.iter().filter(|text| may_be_secret(text));
    secrets.fold(what, |what, text| what.replace(text.as_str(), NOT_SHOWN))
}

fn suggestion(error: &clap::Error) -> Option<String> {
    let found = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand];
    match found.iter().find_map(|kind| error.get(*kind))? {
        ContextValue::String(name) => Some(name.trim_start_matches("--").to_owned()),
        ContextValue::Strings(names) => names.first().cloned(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_does_not_repeat_a_secret() {
        let texts = ["eu".to_owned(), "redis://:s3cret@h".to_owned()];
        let what = "redis://:s3cret@h is not a zone like eu".to_owned();
        assert_eq!(without_secrets(what, &texts), "(not shown) is not a zone like eu");
        assert!(is_secret("redis://:s3cret@h") && is_secret("postgres://h/db?password=s3cret"));
        assert!(!is_secret("postgres://me@h/db") && !is_secret("me:you@h"));
    }

    /// An option of a command is not one of the commands below it, unless it is global.
    #[test]
    fn a_table_is_inherited_by_global_options() {
        let of = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let entry = |command: &[&str], place: &str| ConfigEntry {
            command: of(command),
            key: "tz".to_owned(),
            values: Vec::new(),
            place: place.to_owned(),
        };
        let entries = vec![entry(&["cron"], "1"), entry(&["cron", "add"], "2"), entry(&[], "3")];
        let (name, warnings, problems) = (String::new(), Vec::new(), Vec::new());
        let file = ConfigFile { name, warnings, problems, entries };
        let find = |command: &[&str], is_global| {
            let option = Arg::new("tz").long("tz").global(is_global);
            file.get(&of(command), &option).map(|entry| entry.place.as_str())
        };
        assert_eq!(find(&["cron", "add"], false), Some("2"));
        assert_eq!(find(&["cron", "ls"], false), None);
        assert_eq!(find(&["cron", "ls"], true), Some("1"));
        assert_eq!(find(&["run"], true), Some("3"));
    }
}
