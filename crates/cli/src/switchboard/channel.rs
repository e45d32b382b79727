//! `tenure channel`: the channels and providers that the switchboard takes events from.

use clap::Subcommand;
use serde_json::{Value, json};
use tenure_core::{Code, StoreError};
use tenure_wire::ingest::{Channel, MAX_NAME_BYTES, is_name};

use super::{change, list, open, operator};
use crate::args::Global;
use crate::failure::Failure;
use crate::output::to_stderr;
use crate::table::{or_dash, table};

/// Limits on channels and on providers per channel: every replica keeps the list in memory.
const MAX_CHANNELS: usize = 256;
const MAX_PROVIDERS: usize = 64;

#[derive(Subcommand)]
pub(crate) enum ChannelCommand {
    /// List channels with their providers and aliases
    Ls,
    /// Add a channel, or providers to an existing one
    Add {
        /// Name of the channel, as in `source.channel`
        #[arg(value_parser = plain_name)]
        channel: String,
        /// Provider of the channel, as in `source.provider`; repeatable
        #[arg(long = "provider", value_name = "NAME", required = true, value_parser = plain_name)]
        providers: Vec<String>,
        /// Channel whose dedupe keys this one uses: an event submitted through both channels is
        /// stored once
        #[arg(long, value_name = "CHANNEL", value_parser = plain_name)]
        alias: Option<String>,
        /// Print what would happen and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Remove a channel or one of its providers; stored events stay
    Rm {
        /// Name of the channel
        #[arg(value_parser = plain_name)]
        channel: String,
        /// Remove only this provider
        #[arg(long, value_name = "NAME", value_parser = plain_name)]
        provider: Option<String>,
        /// Print what would happen and change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

/// Parses the name of a channel or provider.
pub(super) fn plain_name(text: &str) -> Result<String, String> {
    match is_name(text) {
        true => Ok(text.to_owned()),
        false => Err(format!("a name is 1 to {MAX_NAME_BYTES} characters of a-z, 0-9 and _")),
    }
}

pub(crate) async fn run(command: ChannelCommand, global: &Global) -> Result<String, Failure> {
    let storage = open(global).await?;
    let known = storage.channels().await?;
    let find = |name: &str| known.iter().find(|channel| channel.name == name);
    let (was, becomes, dry_run) = match command {
        ChannelCommand::Ls => {
            return Ok(list(global, ("channels", &known), value, (HEADS, row), ""));
        }
        ChannelCommand::Add { channel, providers, alias, dry_run } => {
            let was = find(&channel);
            let becomes = added(&known, was, Channel { name: channel, providers, alias })?;
            (was, Some(becomes), dry_run)
        }
        ChannelCommand::Rm { channel, provider, dry_run } => {
            let was = find(&channel).ok_or_else(|| no_such_channel(&channel))?;
            (Some(was), removed(was, provider.as_deref())?, dry_run)
        }
    };
    if !dry_run
        && was != becomes.as_ref()
        && !storage.replace_channel(was, becomes.as_ref(), &operator()).await?
    {
        let detail = "another operator changed the channel in the meantime: check it and try again";
        return Err(conflict(detail.to_owned()));
    }
    let (before, after) = (was.map(value), becomes.as_ref().map(value));
    let report = json!({ "dry_run": dry_run, "was": before, "is": after });
    if let Some(becomes) = becomes {
        return Ok(change(global, dry_run, &report, table(HEADS, [row(&becomes)])));
    }
    if !global.json && !dry_run {
        to_stderr("running replicas will refuse its events within 5 seconds");
    }
    let did = if dry_run { "would be removed" } else { "is removed" };
    let text = format!("channel {} {did}\n", was.map_or("", |was| was.name.as_str()));
    Ok(change(global, dry_run, &report, text))
}

/// Returns the channel with the additions.
fn added(known: &[Channel], was: Option<&Channel>, new: Channel) -> Result<Channel, Failure> {
    let Channel { name, providers, alias } = new;
    let mut becomes = match was {
        Some(was) if alias.is_some() && was.alias != alias => {
            let keys = match &was.alias {
                Some(alias) => format!("the dedupe keys of {alias}"),
                None => "its own dedupe keys".to_owned(),
            };
            return Err(conflict(format!(
                "{name} uses {keys}; with other keys, repeated events would count as new"
            )));
        }
        Some(was) => was.clone(),
        None => Channel { name, providers: Vec::new(), alias },
    };
    if let (None, Some(alias)) = (was, &becomes.alias) {
        let target = known.iter().find(|channel| channel.name == *alias);
        if target.ok_or_else(|| no_such_channel(alias))?.alias.is_some() {
            return Err(conflict(format!(
                "{alias} is an alias itself: name the channel behind it"
            )));
        }
    }
    for provider in providers {
        if !becomes.providers.contains(&provider) {
            becomes.providers.push(provider);
        }
    }
    if becomes.providers.len() > MAX_PROVIDERS || known.len() >= MAX_CHANNELS && was.is_none() {
        return Err(conflict(format!(
            "the limit is {MAX_CHANNELS} channels with {MAX_PROVIDERS} providers each"
        )));
    }
    Ok(becomes)
}

/// Returns the channel without the provider; `None` if the whole channel is removed.
fn removed(was: &Channel, provider: Option<&str>) -> Result<Option<Channel>, Failure> {
    let Some(provider) = provider else { return Ok(None) };
    if !was.providers.iter().any(|known| known == provider) {
        return Err(no_such_channel(&format!("{} with provider {provider}", was.name)));
    }
    let mut becomes = was.clone();
    becomes.providers.retain(|known| known != provider);
    Ok((!becomes.providers.is_empty()).then_some(becomes))
}

pub(super) fn no_such_channel(name: &str) -> Failure {
    StoreError::refused(Code::NoSuchChannel, name).into()
}

fn conflict(detail: String) -> Failure {
    StoreError::refused(Code::ChannelConflict, detail).into()
}

const HEADS: [&str; 3] = ["CHANNEL", "PROVIDERS", "ALIAS"];

fn row(Channel { name, providers, alias }: &Channel) -> [String; 3] {
    [name.clone(), providers.join(","), or_dash(alias.as_deref())]
}

fn value(Channel { name, providers, alias }: &Channel) -> Value {
    json!({ "channel": name, "providers": providers, "alias": alias })
}
