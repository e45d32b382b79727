//! Finding instances by what people call them: an id, a name, a host, or the beginning of an id.

use tenure_core::engine::{GroupConfig, MemberStatus};
use tenure_core::roster::Pin;
use tenure_core::store::Member;
use tenure_core::{Code, GroupName, Instance, InstanceId, Label, Store};

use crate::audit::AuditTrail;
use crate::error::{OperateError, nothing_happened};
use crate::group::StoredGroup;

/// Names in an error.
const MAX_LISTED_INSTANCES: usize = 10;
/// Similar names in an error.
const MAX_SUGGESTIONS: usize = 3;
/// Similarity from which a name is suggested, as in suggestions of options; equal words have 1.
const MIN_SIMILARITY: f64 = 0.7;

/// Finds an instance of a group. An id that the group knows comes first, also that of an instance
/// that has ended; then a member of this name, one on this host, and one whose id begins so. A
/// word that fits several members is refused with [`Code::Ambiguous`].
pub async fn instance(
    store: &dyn Store,
    group: &GroupName,
    word: &InstanceId,
) -> Result<InstanceId, OperateError> {
    let group = StoredGroup::read_lenient(store, group).await?;
    find(store, &group, word).await?.ok_or_else(|| {
        let near = suggestion(std::slice::from_ref(&group), word);
        OperateError::not_there(format!("{word} is not a member of {}{near}", group.name))
    })
}

/// Finds an instance in every group of the store in which it is a member, as [`instance`] does. The
/// word may mean a different instance in each group; an exact id means only that one.
pub async fn in_all_groups(
    store: &dyn Store,
    word: &InstanceId,
) -> Result<Vec<(GroupName, InstanceId)>, OperateError> {
    let mut groups = Vec::new();
    for name in store.groups().await.map_err(nothing_happened)? {
        match StoredGroup::read_lenient(store, &name).await {
            Ok(group) => groups.push(group),
            // Removed since it was listed.
            Err(error) if error.code() == Code::NotThere => {}
            Err(error) => return Err(error.into()),
        }
    }
    let is_exact = groups.iter().any(|group| group.member(word).is_some());
    let mut found = Vec::new();
    for group in &groups {
        let instance = match is_exact {
            true => Some(word.clone()),
            false => find(store, group, word).await?,
        };
        let instance = instance.filter(|instance| group.member(instance).is_some());
        found.extend(instance.map(|instance| (group.name.clone(), instance)));
    }
    if found.is_empty() {
        let near = suggestion(&groups, word);
        return Err(OperateError::not_there(format!("{word} is not a member of any group{near}")));
    }
    Ok(found)
}

async fn find(
    store: &dyn Store,
    group: &StoredGroup,
    word: &InstanceId,
) -> Result<Option<InstanceId>, OperateError> {
    if group.member(word).is_some() || is_named(&group.document, word) {
        return Ok(Some(word.clone()));
    }
    let found = fitting(&group.members, word.as_str());
    let AuditTrail(past) = AuditTrail::read(store, &group.name).await?;
    if past.iter().any(|entry| entry.instance == *word) {
        return Ok(Some(word.clone()));
    }
    match found[..] {
        [] => Ok(None),
        [one] => Ok(Some(one.instance.clone())),
        _ => {
            let what = format!("{word} in {}: {}", group.name, list(&found));
            Err(OperateError::refused(Code::Ambiguous, what))
        }
    }
}

/// Whether a directive names an instance.
fn is_named(document: &GroupConfig, instance: &InstanceId) -> bool {
    let is_pin = |pin: &Pin| matches!(pin, Pin::Instance(one) if one == instance);
    document.drained.contains_key(instance)
        || document.cordoned.contains(instance)
        || document.weights.contains_key(instance)
        || document.pins.values().any(is_pin)
}

/// Name that a member publishes.
pub fn name_of(member: &Member) -> Option<Label> {
    MemberStatus::read(&member.note)?.name
}

/// Members that a word fits: by name, else by host, else by the beginning of the id.
fn fitting<'a>(members: &'a [Member], word: &str) -> Vec<&'a Member> {
    let ways: [fn(&Member, &str) -> bool; 3] = [
        |member, word| name_of(member).is_some_and(|name| name.as_str() == word),
        |member, word| Instance::host_of(&member.instance) == Some(word),
        |member, word| begins(&member.instance, word),
    ];
    let found = ways.into_iter().map(|fits| -> Vec<&Member> {
        members.iter().filter(|member| fits(member, word)).collect()
    });
    found.into_iter().find(|found| !found.is_empty()).unwrap_or_default()
}

/// Whether an id begins with a word that includes its host, so that `api-1` does not mean a process
/// on the host `api-10`. Without a host in the id, the word must end where a part of the id does.
fn begins(id: &InstanceId, word: &str) -> bool {
    let Some(rest) = id.as_str().strip_prefix(word) else { return false };
    match Instance::host_of(id) {
        Some(host) => word.len() > host.len(),
        None => !rest.starts_with(char::is_alphanumeric),
    }
}

/// Lists members with their names.
fn list(members: &[&Member]) -> String {
    let one = |member: &&Member| match name_of(member) {
        Some(name) => format!("{} ({name})", member.instance),
        None => member.instance.to_string(),
    };
    let more = members.len().saturating_sub(MAX_LISTED_INSTANCES);
    let listed: Vec<String> = members.iter().take(MAX_LISTED_INSTANCES).map(one).collect();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{more}", listed.join(", "))
}

/// Suggests names, hosts and ids of members that are similar to a word.
fn suggestion(groups: &[StoredGroup], word: &InstanceId) -> String {
    let words = |member: &Member| {
        let host = Instance::host_of(&member.instance).map(str::to_owned);
        let name = name_of(member).map(|name| name.to_string());
        [name, host, Some(member.instance.to_string())]
    };
    let members = groups.iter().flat_map(|group| &group.members);
    let similarity = |other: String| (strsim::jaro(&word.to_string(), &other), other);
    let mut near: Vec<(f64, String)> = members.flat_map(words).flatten().map(similarity).collect();
    near.retain(|(similarity, _)| *similarity > MIN_SIMILARITY);
    near.sort_by(|(a, one), (b, other)| b.total_cmp(a).then_with(|| one.cmp(other)));
    near.dedup();
    let near: Vec<String> = near.into_iter().take(MAX_SUGGESTIONS).map(|(_, name)| name).collect();
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(" or ")) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tenure_core::store::{Evict, OpenSession};
    use tenure_core::{Note, Reason, Ttl, Version};
    use tenure_duty::process;
    use tenure_store::{BootClock, Memory};

    use super::*;

    const WEB_1: &str = "web-1-1736598400000000001-a1b2c3d4";
    const WEB_1_AGAIN: &str = "web-1-1736598400000000002-b1b2c3d4";
    const WEB_10: &str = "web-10-1736598400000000003-c1b2c3d4";

    fn id(text: &str) -> InstanceId {
        InstanceId::new(text).unwrap()
    }

    async fn join(store: &dyn Store, group: &str, instance: &str, name: &str) {
        let note = match name {
            "" => String::new(),
            name => format!("tenure=1\nweight=1\nroom=2\nname={name}\nview=0\n"),
        };
        let open = OpenSession {
            group: GroupName::new(group).unwrap(),
            instance: id(instance),
            nonce: process::fresh_nonce(),
            ttl: Ttl::new(std::time::Duration::from_secs(600)).unwrap(),
            note: Note::new(note).unwrap(),
        };
        store.open_session(&open).await.unwrap();
    }

    /// Two members on the host `web-1`, one on `web-10`, and one with an id of another form.
    async fn store() -> Memory {
        let store = Memory::new(Arc::new(BootClock));
        join(&store, "g", WEB_1, "web-1").await;
        join(&store, "g", WEB_1_AGAIN, "web-1_2").await;
        join(&store, "g", WEB_10, "").await;
        join(&store, "g", "bot-a-7f", "").await;
        join(&store, "other", WEB_10, "api").await;
        join(&store, "other", "api-9", "web-1").await;
        join(&store, "twins", "t-1", "twin").await;
        join(&store, "twins", "t-2", "twin").await;
        store
    }

    #[tokio::test]
    async fn a_word_finds_the_one_instance_that_it_fits() {
        let store = store().await;
        let group = GroupName::new("g").unwrap();
        for (word, found) in [
            (WEB_1, WEB_1),
            // The name, although two members are on this host.
            ("web-1", WEB_1),
            ("web-1_2", WEB_1_AGAIN),
            ("web-10", WEB_10),
            ("web-10-17", WEB_10),
            ("web-1-1736598400000000002", WEB_1_AGAIN),
            ("bot-a", "bot-a-7f"),
            ("bot", "bot-a-7f"),
        ] {
            assert_eq!(instance(&store, &group, &id(word)).await.unwrap(), id(found), "{word}");
        }
        for word in ["web", "web-", "bot-a-7", "bo", "web-1-1736598400000000002-b1b2c3d45", "x"] {
            let error = instance(&store, &group, &id(word)).await.unwrap_err();
            assert_eq!(error.code(), Code::NotThere, "{word}: {error}");
        }
    }

    #[tokio::test]
    async fn a_word_that_fits_two_is_refused_and_lists_them() {
        let store = store().await;
        let refused = async |group: &str, word: &str| {
            let group = GroupName::new(group).unwrap();
            let error = instance(&store, &group, &id(word)).await.unwrap_err();
            assert_eq!(error.code(), Code::Ambiguous, "{error}");
            error.to_string()
        };
        let text = refused("g", "web-1-17").await;
        let both = format!("web-1-17 in g: {WEB_1} (web-1), {WEB_1_AGAIN} (web-1_2)");
        assert!(text.ends_with(&both), "{text}");
        let text = refused("twins", "twin").await;
        assert!(text.ends_with("twin in twins: t-1 (twin), t-2 (twin)"), "{text}");
        // One group refuses for all.
        join(&store, "g", "t-3", "t").await;
        let error = in_all_groups(&store, &id("t")).await.unwrap_err();
        assert_eq!(error.code(), Code::Ambiguous, "{error}");
    }

    #[tokio::test]
    async fn an_instance_that_has_ended_is_known_by_its_id() {
        let store = store().await;
        let group = GroupName::new("g").unwrap();
        // It would also be the name of another.
        join(&store, "g", "old", "").await;
        let reason = Reason::new("test").unwrap();
        store.evict(&group, &id("old"), Evict::Now, &reason).await.unwrap();
        join(&store, "g", "new", "old").await;
        assert_eq!(instance(&store, &group, &id("old")).await.unwrap(), id("old"));
        // A directive names one that the trail has forgotten.
        let document = GroupConfig { cordoned: [id("bot")].into(), ..GroupConfig::default() };
        let document = document.document().unwrap();
        store.replace_group_document(&group, Version::ZERO, &document).await.unwrap();
        assert_eq!(instance(&store, &group, &id("bot")).await.unwrap(), id("bot"));
    }

    #[tokio::test]
    async fn all_groups_of_an_instance_are_found() {
        let store = store().await;
        let found = async |word: &str| {
            let found = in_all_groups(&store, &id(word)).await.unwrap();
            let pair = |(group, who): (GroupName, InstanceId)| format!("{group} {who}");
            found.into_iter().map(pair).collect::<Vec<_>>()
        };
        assert_eq!(found(WEB_10).await, [format!("g {WEB_10}"), format!("other {WEB_10}")]);
        assert_eq!(found("web-1").await, [format!("g {WEB_1}"), "other api-9".to_owned()]);
        assert_eq!(found("api").await, [format!("other {WEB_10}")]);
        // An id in one group does not mean a name in another.
        join(&store, "other", "api-8", "bot-a-7f").await;
        assert_eq!(found("bot-a-7f").await, ["g bot-a-7f"]);
        let error = in_all_groups(&store, &id("nobody")).await.unwrap_err();
        assert_eq!(error.code(), Code::NotThere);
        assert!(error.to_string().ends_with("nobody is not a member of any group"), "{error}");
    }

    #[tokio::test]
    async fn similar_names_are_suggested() {
        let store = store().await;
        let group = GroupName::new("g").unwrap();
        let error = instance(&store, &group, &id("web-2")).await.unwrap_err().to_string();
        let near = "web-2 is not a member of g; did you mean web-1_2 or web-1 or web-10?";
        assert!(error.ends_with(near), "{error}");
        let error = instance(&store, &group, &id("q")).await.unwrap_err().to_string();
        assert!(error.ends_with("q is not a member of g"), "{error}");
    }
}
