//! Submissions and outcomes as the product has them.

use tenure_core::{DutyKey, Epoch, InstanceId};
use tenure_switchboard::commit::{SubmitError, SubmitResult};
use tenure_switchboard::storage::{
    IngestFence, SourceScope, Submission, SubmissionOutcome, SubmissionRejection, SubmittedEvent,
};
use tenure_wire::ingest::{Dedupe, IngestEvent};

use super::submit::QueuedSubmission;
use crate::switchboard::story::{EventKey, SentHold, SourceEvent, SubmissionFate};

/// Returns the source with this number, for a token.
pub(super) fn scope(source: usize) -> SourceScope {
    SourceScope {
        channel: "api".to_owned(),
        provider: "internal".to_owned(),
        endpoint_identity: endpoint(source),
    }
}

pub(super) fn endpoint(source: usize) -> String {
    format!("e{source}")
}

fn digest(source: usize, key: EventKey) -> [u8; 32] {
    let words = match key {
        EventKey::Number(number) => [source as u64, 0, number, 0],
        EventKey::Content(text, hour) => [source as u64, 1, text, hour as u64],
    };
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    std::array::from_fn(|at| bytes[at])
}

fn event(of: SourceEvent) -> IngestEvent {
    let SourceEvent { source, key, payload, observed } = of;
    let previous_hour = match key {
        EventKey::Number(_) => None,
        EventKey::Content(text, hour) => Some(digest(source, EventKey::Content(text, hour - 1))),
    };
    let SourceScope { channel, provider, endpoint_identity } = scope(source);
    let mut payload_digest = [0; 32];
    payload_digest[..8].copy_from_slice(&payload.to_be_bytes());
    let dedupe = Dedupe { key: format!("{key:?}"), digest: digest(source, key), previous_hour };
    IngestEvent {
        channel,
        provider,
        endpoint_identity,
        sender_identity: "sim".to_owned(),
        thread_identity: None,
        policy_tier: "default",
        observed_at_micros: observed,
        dedupe,
        payload_digest,
        envelope: "{}".to_owned(),
    }
}

pub(super) fn submission(group: &QueuedSubmission) -> Submission {
    // The names and numbers are always valid.
    let fence = |hold: SentHold| IngestFence {
        duty: DutyKey::new("sim", format!("d{}", hold.duty)).expect("a duty"),
        epoch: Epoch::new(hold.epoch).expect("an epoch"),
        instance: InstanceId::new(format!("i{}", hold.instance)).expect("an instance"),
    };
    let items =
        group.items.iter().map(|(id, of)| SubmittedEvent { request_id: *id, event: event(*of) });
    Submission {
        items: items.collect(),
        fence: group.hold.map(fence),
        token_id: group.token.map(|token| format!("tok_{token}")),
    }
}

fn rejected(why: SubmissionRejection) -> SubmissionFate {
    match why {
        SubmissionRejection::Fenced(told) => SubmissionFate::Fenced(told.map(|told| {
            let instance = told.instance.trim_start_matches('i').parse().unwrap_or(0);
            (told.epoch.get(), instance)
        })),
        SubmissionRejection::BadFence(why) => SubmissionFate::Failed(format!("{why:?}")),
        SubmissionRejection::TokenEnded(end) => SubmissionFate::Ended(end),
    }
}

pub(super) fn outcome(outcome: SubmissionOutcome) -> SubmissionFate {
    match outcome {
        SubmissionOutcome::Stored(outcomes) => {
            SubmissionFate::Stored(outcomes.into_iter().map(Some).collect())
        }
        SubmissionOutcome::Rejected(why) => rejected(why),
    }
}

pub(super) fn fate(result: SubmitResult) -> SubmissionFate {
    match result {
        Ok(outcomes) => SubmissionFate::Stored(outcomes.into_iter().map(Result::ok).collect()),
        Err(SubmitError::Rejected(why)) => rejected(why),
        Err(error) => SubmissionFate::Failed(format!("{error:?}")),
    }
}
