//! Channels and providers of events.

/// Published channels and their providers.
pub const PAIRS: [(&str, &[&str]); 5] = [
    ("telegram", &["telegram"]),
    ("slack", &["slack"]),
    ("email", &["gmail", "imap"]),
    ("api", &["internal"]),
    ("mcp", &["internal"]),
];

/// Maximum length of the name of a channel or provider.
pub const MAX_NAME_BYTES: usize = 64;

/// Returns whether a channel or provider may have this name: `[a-z0-9_]{1,64}`.
pub fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(plain)
}

/// A channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Its name.
    pub name: String,
    /// Its providers.
    pub providers: Vec<String>,
    /// Channel in its dedupe keys: an event of either channel is the same.
    pub alias: Option<String>,
}

/// Handling of fields that `ingest.v1` does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fields {
    /// The envelope is refused.
    #[default]
    Refused,
    /// They stay in the envelope.
    Kept,
}

/// Rules for reading an envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    channels: Vec<Channel>,
    /// The names of all channels, and of all providers, each once.
    pub(super) names: Vec<String>,
    pub(super) providers: Vec<String>,
    pub(super) fields: Fields,
}

impl Default for Rules {
    fn default() -> Self {
        Self::published(Fields::Refused)
    }
}

impl Rules {
    /// Returns the rules with the published channels.
    pub fn published(fields: Fields) -> Self {
        let channel = |(name, providers): (&str, &[&str])| Channel {
            name: name.to_owned(),
            providers: providers.iter().map(|&name| name.to_owned()).collect(),
            alias: None,
        };
        Self::new(PAIRS.into_iter().map(channel).collect(), fields)
    }

    /// Returns the rules with these channels.
    pub fn new(channels: Vec<Channel>, fields: Fields) -> Self {
        let names = channels.iter().map(|channel| channel.name.clone()).collect();
        let mut providers: Vec<String> = Vec::new();
        for provider in channels.iter().flat_map(|channel| &channel.providers) {
            // Some belong to several channels.
            if !providers.contains(provider) {
                providers.push(provider.clone());
            }
        }
        Self { channels, names, providers, fields }
    }

    /// Returns the channel of this name.
    pub fn channel(&self, name: &str) -> Option<&Channel> {
        self.channels.iter().find(|channel| channel.name == name)
    }

    /// Returns the name of a channel in dedupe keys.
    pub fn keyed<'a>(&'a self, name: &'a str) -> &'a str {
        self.channel(name).and_then(|channel| channel.alias.as_deref()).unwrap_or(name)
    }
}
