use super::*;
use crate::ingest::PAIRS;

/// Every channel with each of its providers.
fn pairs() -> impl Iterator<Item = (&'static str, &'static str)> {
    PAIRS.into_iter().flat_map(|(channel, providers)| providers.iter().map(move |p| (channel, *p)))
}

/// Scopes of tokens that may send heartbeats of this type.
fn scopes(connector_type: &str) -> Vec<String> {
    let fitting = pairs().filter(|(channel, provider)| fits(connector_type, channel, provider));
    fitting.map(|(channel, provider)| format!("{channel}/{provider}")).collect()
}

#[test]
fn a_type_fits_the_scope_of_its_source() {
    for name in ["telegram", "telegram_bot", "telegram_user_client"] {
        assert_eq!(scopes(name), ["telegram/telegram"], "{name}");
    }
    assert_eq!(scopes("slack"), ["slack/slack"]);
    assert_eq!(scopes("gmail"), ["email/gmail"]);
    assert_eq!(scopes("imap"), ["email/imap"]);
    assert_eq!(scopes("api"), ["api/internal"]);
    assert_eq!(scopes("mcp"), ["mcp/internal"]);
    for name in ["internal", "my_crm", "Gmail", "telegram_bot2", "email", ""] {
        assert_eq!(scopes(name), ["api/internal", "mcp/internal"], "{name}");
    }
    // The connectors of an unknown provider have its name.
    assert!(fits("signal", "signal", "signal"));
    assert!(!fits("signal", "telegram", "telegram"));
    assert!(fits("telegram_bot", "telegram_bot", "telegram"));
    assert!(!fits("telegram_bot", "telegram_user_client", "telegram"));
}

#[test]
fn messages_come_from_a_type_that_fits() {
    let of = |channel: &str, provider: &str, registered: &[&str]| {
        let registered: Vec<_> = registered.iter().map(|name| (*name).to_owned()).collect();
        connector_type_of(channel, provider, &registered)
    };
    let usual = ["telegram_bot", "slack", "gmail", "imap", "api", "mcp"];
    for ((channel, provider), usual) in pairs().zip(usual) {
        assert_eq!(of(channel, provider, &[]), usual);
        assert_eq!(of(channel, provider, &["other_thing", usual]), usual);
    }
    let telegram = |registered: &[&str]| of("telegram", "telegram", registered);
    assert_eq!(telegram(&["slack", "telegram", "telegram_user_client"]), "telegram");
    assert_eq!(telegram(&["telegram_user_client", "telegram_bot"]), "telegram_bot");
    assert_eq!(telegram(&["slack", "crm"]), "telegram_bot");
    assert_eq!(of("api", "internal", &["gmail", "crm", "erp"]), "crm");
    assert_eq!(of("signal", "signal", &[]), "signal");
}
