//! Mapping between connector types and sources.

/// Types that belong to one channel and provider. The first is the default name of its connectors.
const KNOWN_TYPES: [(&str, &str, &[&str]); 6] = [
    ("telegram", "telegram", &["telegram_bot", "telegram_user_client", "telegram"]),
    ("slack", "slack", &["slack"]),
    ("email", "gmail", &["gmail"]),
    ("email", "imap", &["imap"]),
    ("api", INTERNAL, &["api"]),
    ("mcp", INTERNAL, &["mcp"]),
];

/// The provider of custom sources: their connectors may have any name.
const INTERNAL: &str = "internal";

/// Returns whether a token for this channel and provider may send heartbeats of this type.
pub fn fits(connector_type: &str, channel: &str, provider: &str) -> bool {
    let known = KNOWN_TYPES.iter().find(|(_, _, names)| names.contains(&connector_type));
    match known {
        // Newer connectors have channels named after themselves.
        Some(_) if connector_type == channel => true,
        Some((of_channel, of_provider, _)) => (*of_channel, *of_provider) == (channel, provider),
        None => provider == INTERNAL || connector_type == provider,
    }
}

/// Returns the type of the connector that sent messages of this channel and provider: a fitting one
/// of the types registered for their endpoint, or else the default.
pub fn connector_type_of(channel: &str, provider: &str, registered: &[String]) -> String {
    let known = KNOWN_TYPES.iter().find(|(c, p, _)| (*c, *p) == (channel, provider));
    let usual = known.and_then(|(_, _, names)| names.first()).copied().unwrap_or(provider);
    let fitting = || registered.iter().find(|name| fits(name, channel, provider));
    match registered.iter().find(|name| *name == usual).or_else(fitting) {
        Some(name) => name.clone(),
        None => usual.to_owned(),
    }
}
