//! `tenure.toml` and published variables; `tenure config`: values of options, and their sources.

mod file;
mod layers;
mod published;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{ArgAction, Subcommand};
use serde_json::{Value, json};
use tenure_core::text::counted;
use tenure_core::{Code, StoreError};
use tenure_store::StoreUrl;
use tenure_targets::TargetsUrl;

use crate::args::{Global, NOT_SHOWN, UsageError, may_be_secret, path};
use crate::failure::Failure;
use crate::output::{document, shown, to_stderr};
use crate::paint::Paint;
use crate::table::{or_dash, table};
use file::{ConfigFile, ConfigProblem};
pub(crate) use layers::Layers;
use layers::{GivenOptions, OptionSetting, SettingSource, commands, is_flag, relaxed};

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: Option<ConfigCommand>,
    /// Command with its options; if omitted, global options and all values that are set
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Check a configuration file and list all of its problems
    Check {
        /// File to check
        file: PathBuf,
    },
}

/// Adds the values of environment and file to a command line.
pub(crate) fn layers(words: &[OsString]) -> Result<Layers, Failure> {
    match GivenOptions::read(&mut relaxed(), words) {
        Ok(given) if given.reads_file => Ok(given.layers(words, given.read_file()?.as_ref())?),
        // clap reports an error when it reads the words with its rules.
        _ => Ok(Layers { words: words.to_owned(), ..Layers::default() }),
    }
}

/// Prints warnings to standard error.
pub(crate) fn note_warnings(warnings: &[String]) {
    let head = Paint::Warning.err("warning:");
    warnings.iter().for_each(|warning| to_stderr(&format!("{head} {}", shown(warning))));
}

pub(crate) fn run(args: &ConfigArgs, global: &Global) -> Result<String, Failure> {
    match &args.command {
        Some(ConfigCommand::Check { file }) => check(&path(file)?, global),
        None => show(&args.words, global),
    }
}

/// Checks a file, which is not used.
fn check(path: &Path, global: &Global) -> Result<String, Failure> {
    let ConfigFile { name, warnings, problems, .. } = ConfigFile::read(path)?;
    note_warnings(&warnings);
    let value = |found: &ConfigProblem| json!({ "line": found.line, "problem": found.text });
    let line =
        |found: &ConfigProblem| shown(&format!("{name}:{}: {}", found.line, found.text)) + "\n";
    let list: Vec<Value> = problems.iter().map(value).collect();
    let report = global.show(&json!({ "file": name, "problems": list }), || match &problems[..] {
        [] => shown(&name) + " is valid\n",
        problems => problems.iter().map(line).collect(),
    });
    if problems.is_empty() {
        return Ok(report);
    }
    let detail = format!("{name} has {}", counted(problems.len(), "problem", "problems"));
    let error = StoreError::refused(Code::BadConfig, detail);
    Err(Failure::partly(report, error, "nothing was changed").hinting("correct the lines above"))
}

/// Prints the values of a command; or the global ones, and all that are set for any command.
fn show(words: &[OsString], global: &Global) -> Result<String, Failure> {
    let mut definition = relaxed();
    let mut read = |words: &[OsString]| {
        let given = GivenOptions::read(&mut definition, words);
        given.map_err(|error| UsageError::new(&error, words))
    };
    // The command line is the one that would run the command.
    let mut line: Vec<OsString> = std::env::args_os().collect();
    line.iter().position(|word| word == "config").map(|at| line.remove(at));
    let given = match read(&line) {
        Err(help) if !help.is_error => return Ok(help.text),
        given => given?,
    };
    let file = given.read_file()?;
    let root = relaxed();
    let others = commands(&root).into_iter().filter(|_| words.is_empty()).map(|(name, _)| name);
    let mut rows: Vec<SettingRow> = Vec::new();
    let mut warnings: Vec<String> = Vec::new();
    for command in std::iter::once(Vec::new()).chain(others) {
        let line = [&line[..], &command.iter().map(Into::into).collect::<Vec<_>>()].concat();
        let layers = read(&line)?.layers(&line, file.as_ref())?;
        if let Some(error) = layers.store_error {
            return Err(error.into());
        }
        let new = layers.warnings.into_iter().filter(|warning| !warnings.contains(warning));
        warnings.extend(new.collect::<Vec<_>>());
        for setting in layers.settings {
            let is_shown = |row: &SettingRow| {
                command.starts_with(&row.command) && row.setting.is_same(&setting)
            };
            let is_set = setting.source != SettingSource::Default;
            if command.is_empty() || is_set && !rows.iter().any(is_shown) {
                rows.push(SettingRow { command: command.clone(), setting });
            }
        }
    }
    note_warnings(&warnings);
    let is_json = |row: &SettingRow| row.setting.key() == "json" && row.setting.value() == true;
    let file = file.map(|file| file.name);
    let value = |SettingRow { command, setting }: &SettingRow| {
        let (key, source) = (setting.key(), setting.source.to_string());
        let command = command.join(" ");
        json!({ "command": command, "option": key, "value": setting.value(), "source": source })
    };
    Ok(match global.json || rows.iter().any(is_json) {
        true => document(
            &json!({ "file": file, "settings": rows.iter().map(value).collect::<Vec<_>>() }),
        ),
        false => text(file.as_deref(), &rows),
    })
}

/// A row of the list.
struct SettingRow {
    command: Vec<String>,
    setting: OptionSetting,
}

fn text(file: Option<&str>, rows: &[SettingRow]) -> String {
    let rows = rows.iter().map(|SettingRow { command, setting }| {
        let value = match setting.value() {
            Value::Null => or_dash(setting.usual()),
            Value::String(text) => text,
            Value::Array(items) => {
                items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
            }
            other => other.to_string(),
        };
        let key = [&command[..], &[setting.key().to_owned()]].concat().join(".");
        [key, shown(&value), shown(&setting.source.to_string())]
    });
    let table = table(["OPTION", "VALUE", "SOURCE"], rows);
    format!("file: {}\n\n{table}", shown(file.unwrap_or("none")))
}

impl OptionSetting {
    fn key(&self) -> &str {
        self.option.get_long().unwrap_or_default()
    }

    fn is_same(&self, other: &Self) -> bool {
        (self.key(), &self.source, &self.values) == (other.key(), &other.source, &other.values)
    }

    /// Returns the value without secrets; `null` if there is none.
    fn value(&self) -> Value {
        let values = self.values.iter();
        let values = values.map(|value| printable(self.key(), &value.to_string_lossy()));
        let values: Vec<String> = values.collect();
        match self.option.get_action() {
            _ if is_flag(&self.option) => json!(values == ["true"]),
            ArgAction::Append => json!(values),
            _ => json!(values.first()),
        }
    }

    /// Returns the default that the help text describes.
    fn usual(&self) -> Option<String> {
        let help = self.option.get_help()?.to_string();
        Some(help.split_once(" [default: ")?.1.trim_end_matches(']').to_owned())
    }
}

/// Returns a value without its secrets.
fn printable(key: &str, value: &str) -> String {
    let url = match key {
        "store" => StoreUrl::parse(value).ok().map(|url| url.to_string()),
        "targets" => TargetsUrl::parse(value).ok().map(|url| url.to_string()),
        _ => None,
    };
    let hidden = if may_be_secret(value) { NOT_SHOWN } else { value };
    url.unwrap_or_else(|| hidden.to_owned())
}
