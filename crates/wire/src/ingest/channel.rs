//! The channels and providers that events may come from.

/// Every channel that is published, and the providers that it has.
pub const PAIRS: [(&str, &[&str]); 5] = [
    ("telegram", &["telegram"]),
    ("slack", &["slack"]),
    ("email", &["gmail", "imap"]),
    ("api", &["internal"]),
    ("mcp", &["internal"]),
];

/// The longest name of a channel or provider.
pub const MAX_NAME_BYTES: usize = 64;

/// Whether a channel or provider may have this name: `[a-z0-9_]{1,64}`.
pub fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(plain)
}

/// A channel that events may come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Its name.
    pub name: String,
    /// The providers that go with it.
    pub providers: Vec<String>,
    /// The channel that stands in its dedupe keys: what came by either is the same event.
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
    /// The published channels alone.
    pub fn published(fields: Fields) -> Self {
        let channel = |(name, providers): (&str, &[&str])| Channel {
            name: name.to_owned(),
            providers: providers.iter().map(|&name| name.to_owned()).collect(),
            alias: None,
        };
        Self::new(PAIRS.into_iter().map(channel).collect(), fields)
    }

    /// These channels.
    pub fn new(channels: Vec<Channel>, fields: Fields) -> Self {
        let names = channels.iter().map(|channel| channel.name.clone()).collect();
        let mut providers: Vec<String> = Vec::new();
        for provider in channels.iter().flat_map(|channel| &channel.providers) {
            // Some go with several channels.
            if !providers.contains(provider) {
                providers.push(provider.clone());
            }
        }
        Self { channels, names, providers, fields }
    }

    /// The channel of that name.
    pub fn channel(&self, name: &str) -> Option<&Channel> {
        self.channels.iter().find(|channel| channel.name == name)
    }

    /// The name that stands for a channel in dedupe keys.
    pub fn keyed<'a>(&'a self, name: &'a str) -> &'a str {
        self.channel(name).and_then(|channel| channel.alias.as_deref()).unwrap_or(name)
    }
}
