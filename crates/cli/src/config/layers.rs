//! Layers of values: command line, environment, file, defaults.
//!
//! clap reads the command line twice. At first no argument is required: that finds the options that
//! are given. Options of the other layers are then added to the words, and clap applies its rules.
//! (As defaults of clap they would not count as given: a certificate in the file would not require
//! its key.)

use std::ffi::{OsStr, OsString};
use std::fmt;

use clap::builder::{Resettable, ValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, Id};
use tenure_core::StoreError;

use super::file::ConfigFile;
use super::published::{self, PublishedValue, process_variable};
use crate::failure::Failure;
use crate::help::{self, CONFIG_ID};

/// Origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SettingSource {
    Flag,
    Variable(String),
    /// File and line.
    File(String),
    Default,
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Variable(name) => write!(f, "env {name}"),
            Self::File(place) => f.write_str(place),
            Self::Default => f.write_str("default"),
        }
    }
}

/// An option with its values.
pub(super) struct OptionSetting {
    pub(super) option: Arg,
    pub(super) values: Vec<OsString>,
    pub(super) source: SettingSource,
}

/// The command that a command line names, and the options that it gives.
pub(super) struct GivenOptions {
    pub(super) command: Vec<String>,
    pub(super) reads_file: bool,
    file: Option<OsString>,
    definition: Command,
    matches: ArgMatches,
}

/// A command line with the values of all layers.
#[derive(Default)]
pub(crate) struct Layers {
    pub(crate) words: Vec<OsString>,
    pub(crate) warnings: Vec<String>,
    /// Reason why the store that the environment means is unknown.
    pub(crate) store_error: Option<StoreError>,
    pub(super) settings: Vec<OptionSetting>,
}

/// Returns the definition of the arguments without required ones. A flag accepts `=false`.
pub(super) fn relaxed() -> Command {
    fn relax(command: Command) -> Command {
        let groups: Vec<Id> = command.get_groups().map(|group| group.get_id().clone()).collect();
        let relax_group = |command: Command, id| command.mut_group(id, |it| it.required(false));
        let command = groups.into_iter().fold(command, relax_group).mut_args(relax_arg);
        let command = command.subcommand_required(false).arg_required_else_help(false);
        command.mut_subcommands(relax)
    }
    relax(help::command())
}

fn relax_arg(arg: Arg) -> Arg {
    let none = || Resettable::<Id>::Reset;
    let arg = arg.required(false).requires(none()).required_unless_present(none());
    if !matches!(arg.get_action(), ArgAction::SetTrue) {
        return arg;
    }
    let arg = arg.action(ArgAction::Set).value_parser(ValueParser::bool()).num_args(0..=1);
    arg.require_equals(true).default_missing_value("true")
}

/// Whether an argument of the relaxed definition is a flag.
pub(super) fn is_flag(arg: &Arg) -> bool {
    arg.get_value_parser().type_id() == ValueParser::bool().type_id()
}

/// Whether the file may set an argument.
pub(super) fn is_option(arg: &Arg) -> bool {
    arg.get_long().is_some() && !["help", "version", CONFIG_ID].contains(&arg.get_id().as_str())
}

/// Whether a command reads the file, unlike commands that have to work with a bad one.
fn reads_file(command: &Command) -> bool {
    let apart = ["completions", "config", "errors", "man"];
    !command.is_hide_set() && !apart.contains(&command.get_name())
}

/// Returns the commands that read the file, by their words.
pub(super) fn commands(root: &Command) -> Vec<(Vec<String>, &Command)> {
    let below = root.get_subcommands().filter(|child| reads_file(child));
    let below = below.flat_map(|child| {
        let name = vec![child.get_name().to_owned()];
        let deeper = commands(child).into_iter();
        let deeper = deeper.map(|(words, command)| ([&name[..], &words].concat(), command));
        std::iter::once((name.clone(), child)).chain(deeper.collect::<Vec<_>>())
    });
    below.collect()
}

impl Layers {
    /// Returns the names of the options on the command line.
    pub(crate) fn typed(&self) -> Vec<String> {
        let typed = self.settings.iter().filter(|setting| setting.source == SettingSource::Flag);
        typed.filter_map(|setting| setting.option.get_long().map(str::to_owned)).collect()
    }

    /// Returns the URL of the store; `None` if it or the command line cannot be read.
    pub(crate) fn store_url(&self) -> Option<OsString> {
        let is_store = |setting: &&OptionSetting| setting.option.get_long() == Some("store");
        let setting = self.settings.iter().find(is_store).filter(|_| self.store_error.is_none());
        setting?.values.first().cloned()
    }

    /// Returns a line for usage errors that names the options from the file.
    pub(crate) fn note(&self) -> String {
        let lines = self.settings.iter().filter_map(|setting| match &setting.source {
            SettingSource::File(place) => Some(format!("{} ({place})", setting.option)),
            _ => None,
        });
        let lines: Vec<String> = lines.collect();
        if lines.is_empty() {
            String::new()
        } else {
            format!("\nfrom the file: {}", lines.join(", "))
        }
    }
}

impl GivenOptions {
    /// Reads a command line.
    pub(super) fn read(relaxed: &mut Command, words: &[OsString]) -> Result<Self, clap::Error> {
        let mut matches = relaxed.try_get_matches_from_mut(words)?;
        let (mut definition, mut command, mut reads) = (&*relaxed, Vec::new(), true);
        let mut file = None;
        loop {
            if let Ok(Some(name)) = matches.try_get_one::<OsString>(CONFIG_ID)
                && (file.is_none() || is_typed(&matches, CONFIG_ID))
            {
                file = Some(name.clone());
            }
            let Some((name, below)) = matches.remove_subcommand() else { break };
            definition = definition.find_subcommand(&name).unwrap_or(definition);
            reads &= reads_file(definition);
            command.push(name);
            matches = below;
        }
        let definition = definition.clone();
        Ok(Self { command, reads_file: reads, file, definition, matches })
    }

    /// Reads the configuration file of this command line.
    pub(super) fn read_file(&self) -> Result<Option<ConfigFile>, Failure> {
        ConfigFile::find(self.file.as_deref())
    }

    /// Returns the options that the file may set.
    pub(super) fn options(&self) -> impl Iterator<Item = &Arg> {
        self.definition.get_arguments().filter(|arg| is_option(arg))
    }

    fn source(&self, arg: &Arg) -> Option<ValueSource> {
        self.matches.value_source(arg.get_id().as_str())
    }

    /// Adds the values of the other layers to a command line.
    pub(super) fn layers(
        &self,
        words: &[OsString],
        file: Option<&ConfigFile>,
    ) -> Result<Layers, StoreError> {
        let warnings = file.map_or_else(Vec::new, |file| file.warnings.clone());
        let mut layers = Layers { warnings, ..Layers::default() };
        let mut added = Vec::new();
        for option in self.options() {
            let raw = || {
                let raw = self.matches.get_raw(option.get_id().as_str());
                raw.into_iter().flatten().map(OsStr::to_owned).collect::<Vec<_>>()
            };
            let (values, source) = match self.source(option) {
                Some(ValueSource::CommandLine) => (raw(), SettingSource::Flag),
                Some(ValueSource::EnvVariable) => {
                    let name = option.get_env().unwrap_or_default().to_string_lossy();
                    (raw(), SettingSource::Variable(name.into_owned()))
                }
                _ => self.lower(option, file, &mut layers, &mut added)?,
            };
            if let (Some("store"), None, [url]) =
                (option.get_long(), &layers.store_error, &values[..])
            {
                let differs = published::contradiction(&url.to_string_lossy(), &process_variable);
                layers.warnings.extend(differs);
            }
            layers.settings.push(OptionSetting { option: option.clone(), values, source });
        }
        layers.words = self.with_words(words, added);
        Ok(layers)
    }

    /// Returns the value of an option from a published variable, the file or the definition. Adds
    /// words, unless it is the default.
    fn lower(
        &self,
        option: &Arg,
        file: Option<&ConfigFile>,
        layers: &mut Layers,
        added: &mut Vec<OsString>,
    ) -> Result<(Vec<OsString>, SettingSource), StoreError> {
        let (command, name) = (self.command.join(" "), option.get_long().unwrap_or_default());
        let (variables, warnings) = (&process_variable, &mut layers.warnings);
        let published = match name {
            // An argument that excludes the option overrides the lower layers.
            _ if self.excludes(option) => None,
            "store" => published::store(variables).unwrap_or_else(|error| {
                layers.store_error = Some(error);
                None
            }),
            _ => published::of_option(&command, name, variables, warnings)?,
        };
        let entry = file.filter(|_| !self.excludes(option));
        let entry = entry.and_then(|file| file.get(&self.command, option));
        let (values, source) = match (published, entry) {
            (Some(PublishedValue { variable, value }), _) => {
                (vec![value.into()], SettingSource::Variable(variable.to_owned()))
            }
            (None, Some(entry)) => (entry.values.clone(), SettingSource::File(entry.place.clone())),
            (None, None) => {
                let values = option.get_default_values().iter();
                let values = values.map(|value| value.as_os_str().to_owned());
                return Ok((values.collect(), SettingSource::Default));
            }
        };
        added.extend(as_words(option, &values));
        Ok((values, source))
    }

    fn excludes(&self, option: &Arg) -> bool {
        let conflicts = |one: &Arg, other: &Arg| {
            let excluded = self.definition.get_arg_conflicts_with(one);
            excluded.iter().any(|arg| arg.get_id() == other.get_id())
        };
        let given =
            |arg: &&Arg| !matches!(self.source(arg), None | Some(ValueSource::DefaultValue));
        let mut given = self.definition.get_arguments().filter(given);
        given.any(|arg| conflicts(arg, option) || conflicts(option, arg))
    }

    /// Inserts options before `--`, and removes flags that are `false`.
    fn with_words(&self, words: &[OsString], added: Vec<OsString>) -> Vec<OsString> {
        let mut positionals = self.definition.get_positionals();
        if self.definition.has_subcommands() && positionals.all(|arg| self.source(arg).is_none()) {
            // clap asks for a command, or prints its help.
            return words.to_owned();
        }
        let is_end = |word: &OsString| word == "--";
        let (before, after) = words.split_at(words.iter().position(is_end).unwrap_or(words.len()));
        let without_value = |word: &OsString| {
            let (name, value) = word.to_str()?.strip_prefix("--")?.split_once('=')?;
            let is_this = |option: &&Arg| is_flag(option) && option.get_long() == Some(name);
            let flag = self.options().find(is_this)?;
            Some(as_words(flag, &[value.into()]))
        };
        let before = before.iter();
        let before =
            before.flat_map(|word| without_value(word).unwrap_or_else(|| vec![word.clone()]));
        before.chain(added).chain(after.iter().cloned()).collect()
    }
}

fn is_typed(matches: &ArgMatches, id: &str) -> bool {
    matches.value_source(id) == Some(ValueSource::CommandLine)
}

/// Writes an option as words of a command line.
pub(super) fn as_words(option: &Arg, values: &[OsString]) -> Vec<OsString> {
    let name = format!("--{}", option.get_long().unwrap_or_default());
    let may_be_bare = option.get_num_args().is_some_and(|range| range.min_values() == 0);
    let word = |value: &OsString| match value.to_str() {
        Some("true") if may_be_bare => Some(name.clone().into()),
        Some("false") if may_be_bare => None,
        _ => {
            let mut word = OsString::from(format!("{name}="));
            word.push(value);
            Some(word)
        }
    };
    values.iter().filter_map(word).collect()
}
