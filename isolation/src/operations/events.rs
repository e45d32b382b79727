//! Operations of the switchboard on events, fences, letters and tokens.
//!
//! Prepared: the event `old` and its key are past their retention, `two` is not. Duty `t/p` has a
//! fence of epoch 7 for all sources and for the source of `tok_a`. Letter 21 is pending, 22 ended
//! long ago. `tok_a` and `tok_b` are valid. Connector `ahead/clock` has times of the year 2200.

use tenure_core::{DutyKey, Epoch, InstanceId, StoreError};
use tenure_switchboard::StorageResult;
use tenure_switchboard::storage::{
    Attempt, ClockMeasurement, DeadLetter, Decision, InboxQuery, InboxRetention, IngestFence,
    LetterQuery, LetterResolution, NewToken, SourceScope, Submission, SubmittedEvent, TimeSource,
    TokenUsage,
};
use tenure_wire::ingest::{Channel, Dedupe, IngestEvent};
use uuid::Uuid;

use super::{Kind, Part, TestedOperation, operations, show};
use crate::server::Handles;

pub(crate) const SECOND: i64 = 1_000_000;
pub(crate) const DAY: i64 = 24 * 3_600 * SECOND;
/// 2100-01-01T00:00:00Z.
const YEAR_2100: i64 = 4_102_444_800 * SECOND;

/// Returns bytes that differ by name, in the place of a digest.
pub(crate) fn digest(name: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
    bytes
}

pub(crate) fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

pub(crate) fn event(name: &str, number: u128) -> SubmittedEvent {
    let event = IngestEvent {
        channel: "telegram".to_owned(),
        provider: "telegram".to_owned(),
        endpoint_identity: "bot".to_owned(),
        sender_identity: "user".to_owned(),
        thread_identity: None,
        policy_tier: "default",
        observed_at_micros: 1_771_151_400 * SECOND,
        dedupe: Dedupe { key: name.to_owned(), digest: digest(name), previous_hour: None },
        payload_digest: digest(name),
        envelope: format!("{{\"name\":\"{name}\"}}"),
    };
    SubmittedEvent { request_id: id(number), event }
}

pub(crate) fn fence(epoch: u64, instance: &str) -> StorageResult<IngestFence> {
    let duty = DutyKey::new("t", "p")?;
    Ok(IngestFence { duty, epoch: Epoch::new(epoch)?, instance: InstanceId::new(instance)? })
}

pub(crate) fn decision(token: Option<&str>) -> Decision {
    let (by, reason) = ("me".to_owned(), "x".to_owned());
    Decision { by, reason, token_id: token.map(str::to_owned) }
}

pub(crate) fn scope() -> SourceScope {
    let text = |text: &str| text.to_owned();
    SourceScope {
        channel: text("telegram"),
        provider: text("telegram"),
        endpoint_identity: text("bot"),
    }
}

pub(crate) fn token(name: &str, replaces: Option<&str>) -> NewToken {
    NewToken {
        token_id: name.to_owned(),
        hash: digest(name),
        environment: "live".to_owned(),
        roles: vec!["ingest".to_owned()],
        scope: Some(scope()),
        lifetime: 90 * DAY,
        by: "me".to_owned(),
        description: "x".to_owned(),
        replaces: replaces.map(str::to_owned),
    }
}

pub(crate) fn letter(name: &str, number: u128) -> DeadLetter {
    let SourceScope { channel, provider, endpoint_identity } = scope();
    DeadLetter {
        id: id(number),
        digest: digest(name),
        channel,
        provider,
        endpoint_identity,
        external_event_id: None,
        error_class: "timeout".to_owned(),
        reason: "x".to_owned(),
        attempts: 5,
        envelope: "{}".to_owned(),
    }
}

pub(crate) fn channel(alias: Option<&str>) -> Channel {
    let (name, providers) = ("fax".to_owned(), vec!["modem".to_owned()]);
    Channel { name, providers, alias: alias.map(str::to_owned) }
}

/// Submits events under a fence and with a token.
pub(crate) async fn commit(
    on: Handles,
    items: &[(&str, u128)],
    fence: Option<StorageResult<IngestFence>>,
    token: Option<&str>,
) -> StorageResult<impl std::fmt::Debug> {
    let items = items.iter().map(|(name, number)| event(name, *number)).collect();
    let (fence, token_id) = (fence.transpose()?, token.map(str::to_owned));
    on.storage.commit(&[Submission { items, fence, token_id }]).await
}

/// Submits an event of the hour that follows that of the key `old`.
async fn commit_hour(on: Handles) -> StorageResult<impl std::fmt::Debug> {
    let mut item = event("hour", 25);
    item.event.dedupe.previous_hour = Some(digest("old"));
    on.storage.commit(&[Submission { items: vec![item], fence: None, token_id: None }]).await
}

async fn post(
    on: Handles,
    name: &str,
    fence: Option<StorageResult<IngestFence>>,
    token: Option<&str>,
) -> StorageResult<impl std::fmt::Debug> {
    on.storage.post_letter(&letter(name, 23), fence.transpose()?.as_ref(), token).await
}

async fn resolve(
    on: Handles,
    state: &'static str,
    token: Option<&str>,
) -> StorageResult<impl std::fmt::Debug> {
    let (id, decision) = (id(21), decision(token));
    on.storage.resolve_letter(&LetterResolution { id, state, decision, request_id: None }).await
}

async fn reset(
    on: Handles,
    source: Option<SourceScope>,
    token: Option<&str>,
) -> StorageResult<impl std::fmt::Debug> {
    on.storage.reset_fence("t/p", source.as_ref(), &decision(token)).await
}

async fn admit(on: Handles, token: &str) -> StorageResult<impl std::fmt::Debug> {
    let (hash, address) = (Some(digest(token)), "10.0.0.1".to_owned());
    on.storage.admit(&Attempt { hash, address, limit: 5, window: DAY }).await
}

async fn usage(on: Handles, tokens: &[&str]) -> StorageResult<impl std::fmt::Debug> {
    let used = tokens.iter().map(|token| TokenUsage {
        token_id: (*token).to_owned(),
        day: "2026-02-15".to_owned(),
        requests: 2,
        accepted: 1,
        ..TokenUsage::default()
    });
    on.storage.add_usage(&used.collect::<Vec<_>>()).await
}

async fn tick(on: Handles) -> StorageResult<impl std::fmt::Debug> {
    // A replica that knows the last turn: its reading is wrong, so no stored time is corrected.
    let since = ClockMeasurement { turn: 0, wall: 0, elapsed: 0 };
    let told = on.storage.tick(Some(since), TimeSource::Now).await?;
    Ok::<_, tenure_switchboard::SwitchboardError>(told.turn)
}

/// Two readings of the clock that agree: times ahead of them are corrected.
async fn correct(on: Handles) -> StorageResult<impl std::fmt::Debug> {
    let since = ClockMeasurement { turn: 9, wall: YEAR_2100, elapsed: 0 };
    let told = on.storage.tick(Some(since), TimeSource::At(YEAR_2100)).await?;
    Ok::<_, tenure_switchboard::SwitchboardError>(told.turn)
}

async fn prune(on: Handles, bodies: i64, keys: i64) -> StorageResult<impl std::fmt::Debug> {
    on.storage.prune(InboxRetention { bodies, keys }).await
}

fn page(endpoint: Option<&str>) -> InboxQuery {
    let endpoint_identity = endpoint.map(str::to_owned);
    InboxQuery { limit: 100, endpoint_identity, ..InboxQuery::default() }
}

operations! { Switchboard;
    "commit-new" Change |on| commit(on, &[("new", 11)], None, None);
    "commit-new-too" Change |on| commit(on, &[("new", 12)], None, None);
    "commit-copy" Change |on| commit(on, &[("old", 13)], None, None);
    "commit-copy-hour" Change |on| commit_hour(on);
    "commit-mixed" Change |on| commit(on, &[("old", 14), ("new", 15), ("two", 16)], None, None);
    "commit-token" Change |on| commit(on, &[("new", 17)], None, Some("tok_a"));
    "commit-token-copy" Change |on| commit(on, &[("two", 18)], None, Some("tok_a"));
    "commit-fence-7" Change |on| commit(on, &[("new", 19)], Some(fence(7, "i")), None);
    "commit-fence-8" Change |on| commit(on, &[("six", 20)], Some(fence(8, "j")), None);
    "commit-token-fence-7" Change |on|
        commit(on, &[("new", 19)], Some(fence(7, "i")), Some("tok_a"));
    "announce-7" Change |on| commit(on, &[], Some(fence(7, "i")), None);
    "announce-8" Change |on| commit(on, &[], Some(fence(8, "j")), None);
    "announce-9" Change |on| commit(on, &[], Some(fence(9, "k")), None);
    "announce-token-8" Change |on| commit(on, &[], Some(fence(8, "j")), Some("tok_a"));
    "adopt-inbox" Change |on| async move { on.storage.adopt("me").await };
    "post" Change |on| post(on, "letter", None, None);
    "post-copy" Change |on| post(on, "pending", None, None);
    "post-fence-7" Change |on| post(on, "letter", Some(fence(7, "i")), Some("tok_a"));
    "resolve" Change |on| resolve(on, "discarded", None);
    "resolve-token" Change |on| resolve(on, "replayed", Some("tok_a"));
    "refuse-letter" Change |on| async move { on.storage.refuse_letter(id(21), "x", "y").await };
    "fence-reset" Change |on| reset(on, None, None);
    "fence-reset-source" Change |on| reset(on, Some(scope()), None);
    "fence-reset-token" Change |on| reset(on, None, Some("tok_a"));
    "revoke" Change |on| async move { on.storage.revoke_token("tok_a", "me", "x").await };
    "revoke-other" Change |on| async move { on.storage.revoke_token("tok_b", "me", "x").await };
    "create-token" Change |on| async move { on.storage.create_token(&token("tok_n", None)).await };
    "rotate-token" Change |on| async move {
        on.storage.create_token(&token("tok_r", Some("tok_a"))).await
    };
    "admit" Change |on| admit(on, "tok_a");
    "admit-unknown" Change |on| admit(on, "tok_x");
    "usage-add" Change |on| usage(on, &["tok_a", "tok_b"]);
    "usage-add-too" Change |on| usage(on, &["tok_b", "tok_a"]);
    "tick" Change |on| tick(on);
    "tick-correct" Change |on| correct(on);
    "prune" Steps |on| prune(on, DAY, 2 * DAY);
    "prune-keys" Steps |on| prune(on, 15 * DAY, 16 * DAY);
    "prune-keys-later" Steps |on| prune(on, DAY, 365 * DAY);
    "channel-add" Change |on| async move {
        on.storage.replace_channel(None, Some(&channel(Some("x"))), "me").await
    };
    "channel-change" Change |on| async move {
        on.storage.replace_channel(Some(&channel(None)), Some(&channel(Some("y"))), "me").await
    };
    "channel-remove" Change |on| async move {
        on.storage.replace_channel(Some(&channel(None)), None, "me").await
    };
    "replica-announce" Change |on| async move { on.storage.announce(id(31), "there").await };
    "replica-other" Change |on| async move { on.storage.announce(id(33), "here").await };
    "replica-withdraw" Change |on| async move { on.storage.withdraw(id(31)).await };
    "inbox" Read |on| async move { on.storage.inbox(&page(None)).await };
    "inbox-endpoint" Read |on| async move { on.storage.inbox(&page(Some("bot"))).await };
    "message" Read |on| async move { on.storage.message(id(1)).await };
    "last-position" Read |on| async move { on.storage.last_position().await };
    "fences" Read |on| async move { on.storage.fences(None, "", 100).await };
    "letters" Read |on| async move {
        on.storage.letters(&LetterQuery { limit: 100, ..LetterQuery::default() }).await
    };
    "letters-pending" Read |on| async move {
        let state = Some("pending".to_owned());
        on.storage.letters(&LetterQuery { limit: 100, state, ..LetterQuery::default() }).await
    };
    "letter" Read |on| async move { on.storage.letter(id(21)).await };
    "pending-letters" Read |on| async move { on.storage.pending_letters().await };
    "has-tokens" Read |on| async move { on.storage.has_tokens().await };
    "tokens" Read |on| async move { on.storage.tokens().await };
    "usage" Read |on| async move { on.storage.usage(None, "2026-01-01").await };
    "token-audit" Read |on| async move {
        let entries = on.storage.audit(None, 100).await?;
        let shown = entries.into_iter().map(|it| (it.token_id, it.action_type));
        let mut shown: Vec<_> = shown.collect();
        shown.sort();
        Ok::<_, StoreError>(shown)
    };
    "channels" Read |on| async move { on.storage.channels().await };
    "replica" Read |on| async move { on.storage.replica(id(31)).await };
    "ping" Read |on| async move { on.storage.ping().await };
}
