//! Channel list.

use tenure_wire::ingest::{Channel, PAIRS};

use crate::place::Place;

fn channel(name: &str, providers: &[&str], alias: Option<&str>) -> Channel {
    Channel {
        name: name.to_owned(),
        providers: providers.iter().map(|&name| name.to_owned()).collect(),
        alias: alias.map(str::to_owned),
    }
}

pub async fn the_list_begins_with_what_is_published(place: Place) {
    let mut published: Vec<_> =
        PAIRS.iter().map(|(name, providers)| channel(name, providers, None)).collect();
    published.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(place.storage.channels().await.unwrap(), published);
}

pub async fn a_channel_is_replaced_as_it_was_seen(place: Place) {
    let (storage, other) = (&place.storage, place.open().await);
    let one = channel("telegram_bot", &["telegram"], Some("telegram"));
    let two = channel("telegram_bot", &["telegram", "x"], Some("telegram"));
    let three = channel("telegram_bot", &["x"], None);
    let found = async || {
        let known = other.channels().await.unwrap();
        known.into_iter().find(|channel| channel.name == "telegram_bot")
    };
    let steps = [
        (None, Some(&one), true),
        (None, Some(&two), false),
        (Some(&two), Some(&three), false),
        (Some(&three), None, false),
        (Some(&one), Some(&two), true),
        (Some(&one), None, false),
        (Some(&two), None, true),
        (Some(&two), None, false),
        (Some(&two), Some(&one), false),
    ];
    let mut is = None;
    for (was, becomes, done) in steps {
        let answer = storage.replace_channel(was, becomes, "me").await.unwrap();
        assert_eq!(answer, done, "{was:?} {becomes:?}");
        if done {
            is = becomes.cloned();
        }
        assert_eq!(found().await, is);
    }
    let trail = storage.audit(Some("telegram_bot"), 9).await.unwrap();
    let trail: Vec<_> = trail.iter().map(|entry| entry.action_type.as_str()).collect();
    assert_eq!(trail, ["channel_remove", "channel_change", "channel_add"]);
}
