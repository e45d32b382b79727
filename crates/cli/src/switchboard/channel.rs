//! `tenure channel`: the channels and providers that the switchboard takes events from.

use clap::Subcommand;
use serde_json::{Value, json};
use tenure_core::{Code, StoreError};
use tenure_switchboard::storage::Storage;
use tenure_wire::ingest::{Channel, MAX_NAME_BYTES, is_name};

use super::operator;
use crate::failure::Failure;
use crate::output::{DRY_RUN, document, to_stderr};
use crate::table::table;

/// The most channels, and the most providers of one: every replica has the whole list in memory.
const MOST_CHANNELS: usize = 256;
const MOST_PROVIDERS: usize = 64;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// List channels, the providers of each, and whose dedupe keys they have
    Ls,
    /// Add a channel, or providers to a channel
    Add {
        /// Name of the channel, as in `source.channel`
        #[arg(value_parser = plain)]
        channel: String,
        /// Provider that goes with it, as in `source.provider`; any number of times
        #[arg(long = "provider", value_name = "NAME", required = true, value_parser = plain)]
        providers: Vec<String>,
        /// Channel whose name stands in the dedupe keys: what came by either is the same event
        #[arg(long, value_name = "CHANNEL", value_parser = plain)]
        alias: Option<String>,
        /// Say what would happen and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Remove a channel, or a provider of it: its events are refused, those that are stored stay
    Rm {
        /// Name of the channel
        #[arg(value_parser = plain)]
        channel: String,
        /// Remove only this provider
        #[arg(long, value_name = "NAME", value_parser = plain)]
        provider: Option<String>,
        /// Say what would happen and change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

/// Reads the name of a channel or provider.
pub(super) fn plain(text: &str) -> Result<String, String> {
    match is_name(text) {
        true => Ok(text.to_owned()),
        false => Err(format!("a name is 1 to {MAX_NAME_BYTES} of a-z, 0-9 and _")),
    }
}

pub(super) async fn run(
    storage: &dyn Storage,
    command: Command,
    json: bool,
) -> Result<String, Failure> {
    let known = storage.channels().await?;
    let find = |name: &str| known.iter().find(|channel| channel.name == name);
    let (was, becomes, dry_run) = match command {
        Command::Ls => return Ok(list(&known, json)),
        Command::Add { channel, providers, alias, dry_run } => {
            let was = find(&channel);
            let becomes = added(&known, was, Channel { name: channel, providers, alias })?;
            (was, Some(becomes), dry_run)
        }
        Command::Rm { channel, provider, dry_run } => {
            let was = find(&channel).ok_or_else(|| not_there(&channel))?;
            (Some(was), removed(was, provider.as_deref())?, dry_run)
        }
    };
    if !dry_run
        && was != becomes.as_ref()
        && !storage.replace_channel(was, becomes.as_ref(), &operator()).await?
    {
        let detail = "somebody else has changed the channel meanwhile: look at it, and try again";
        return Err(conflict(detail.to_owned()));
    }
    Ok(told(was, becomes.as_ref(), dry_run, json))
}

/// The channel with what is added to it.
fn added(known: &[Channel], was: Option<&Channel>, new: Channel) -> Result<Channel, Failure> {
    let Channel { name, providers, alias } = new;
    let mut becomes = match was {
        Some(was) if alias.is_some() && was.alias != alias => {
            let has = was.alias.as_deref().unwrap_or("its own");
            return Err(conflict(format!(
                "{name} has the dedupe keys of {has}: with others, events that come again would \
                 be new ones"
            )));
        }
        Some(was) => was.clone(),
        None => Channel { name, providers: Vec::new(), alias },
    };
    if let (None, Some(alias)) = (was, &becomes.alias) {
        let target = known.iter().find(|channel| channel.name == *alias);
        if target.ok_or_else(|| not_there(alias))?.alias.is_some() {
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
    if becomes.providers.len() > MOST_PROVIDERS || known.len() >= MOST_CHANNELS && was.is_none() {
        return Err(conflict(format!(
            "there may be {MOST_CHANNELS} channels with {MOST_PROVIDERS} providers each"
        )));
    }
    Ok(becomes)
}

/// The channel without a provider; nothing without its last one.
fn removed(was: &Channel, provider: Option<&str>) -> Result<Option<Channel>, Failure> {
    let Some(provider) = provider else { return Ok(None) };
    if !was.providers.iter().any(|known| known == provider) {
        return Err(not_there(&format!("{} with provider {provider}", was.name)));
    }
    let mut becomes = was.clone();
    becomes.providers.retain(|known| known != provider);
    Ok((!becomes.providers.is_empty()).then_some(becomes))
}

pub(super) fn not_there(name: &str) -> Failure {
    StoreError::refused(Code::NoSuchChannel, name).into()
}

fn conflict(detail: String) -> Failure {
    StoreError::refused(Code::ChannelConflict, detail).into()
}

const COLUMNS: [&str; 3] = ["CHANNEL", "PROVIDERS", "ALIAS"];

fn list(known: &[Channel], json: bool) -> String {
    if json {
        let channels: Vec<Value> = known.iter().map(value).collect();
        return document(&json!({ "channels": channels }));
    }
    let row = |Channel { name, providers, alias }: &Channel| {
        [name.clone(), providers.join(","), alias.clone().unwrap_or_else(|| "-".to_owned())]
    };
    table(COLUMNS, known.iter().map(row))
}

fn value(Channel { name, providers, alias }: &Channel) -> Value {
    json!({ "channel": name, "providers": providers, "alias": alias })
}

fn told(was: Option<&Channel>, becomes: Option<&Channel>, dry_run: bool, json: bool) -> String {
    if json {
        let (was, is) = (was.map(value), becomes.map(value));
        return document(&json!({ "dry_run": dry_run, "was": was, "is": is }));
    }
    if dry_run {
        to_stderr(DRY_RUN);
    }
    if let Some(becomes) = becomes {
        return list(std::slice::from_ref(becomes), false);
    }
    if !dry_run {
        to_stderr("replicas that run refuse its events within 5 seconds");
    }
    let did = if dry_run { "would be removed" } else { "is removed" };
    format!("channel {} {did}\n", was.map_or("", |was| was.name.as_str()))
}
