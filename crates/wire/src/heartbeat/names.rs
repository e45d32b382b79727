//! Which types of connectors go with which sources.

/// Types that are known to be of one channel and provider; the first is what its connectors are
/// called when none has said.
const KNOWN_TYPES: [(&str, &str, &[&str]); 6] = [
    ("telegram", "telegram", &["telegram_bot", "telegram_user_client", "telegram"]),
    ("slack", "slack", &["slack"]),
    ("email", "gmail", &["gmail"]),
    ("email", "imap", &["imap"]),
    ("api", INTERNAL, &["api"]),
    ("mcp", INTERNAL, &["mcp"]),
];

/// The provider of what people build themselves: their connectors have any name.
const INTERNAL: &str = "internal";

/// Whether a token for this channel and provider may beat for connectors of this type.
pub fn fits(connector_type: &str, channel: &str, provider: &str) -> bool {
    let known = KNOWN_TYPES.iter().find(|(_, _, names)| names.contains(&connector_type));
    match known {
        // Later versions of connectors have channels of their own, called like themselves.
        Some(_) if connector_type == channel => true,
        Some((of_channel, of_provider, _)) => (*of_channel, *of_provider) == (channel, provider),
        None => provider == INTERNAL || connector_type == provider,
    }
}

/// The type of the connector that messages of this channel and provider came from: one of those
/// that have registered for their endpoint, if it fits.
pub fn connector_type_of(channel: &str, provider: &str, registered: &[String]) -> String {
    let known = KNOWN_TYPES.iter().find(|(c, p, _)| (*c, *p) == (channel, provider));
    let usual = known.and_then(|(_, _, names)| names.first()).copied().unwrap_or(provider);
    let fitting = || registered.iter().find(|name| fits(name, channel, provider));
    match registered.iter().find(|name| *name == usual).or_else(fitting) {
        Some(name) => name.clone(),
        None => usual.to_owned(),
    }
}
