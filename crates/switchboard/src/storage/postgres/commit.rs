//! Submissions as arrays for one statement, and its answer.
//!
//! Why: docs/decisions/0030-one-call-per-commit.md

use std::collections::BTreeMap;

use tenure_core::{Code, Epoch};
use tenure_wire::ingest::IngestEvent;
use tokio_postgres::Row;
use uuid::Uuid;

use super::row::{column, from_micros, index, to_micros};
use super::token::ended;
use super::{PostgresStorage, parameters};
use crate::error::{StorageResult, SwitchboardError};
use crate::storage::{
    BadFence, EventOutcome, IngestFence, NewestHold, Submission, SubmissionOutcome,
    SubmissionRejection, SubmittedEvent,
};

impl PostgresStorage {
    pub(super) async fn commit_group(
        &self,
        group: &[Submission],
    ) -> StorageResult<Vec<SubmissionOutcome>> {
        if group.is_empty() {
            return Ok(Vec::new());
        }
        let gates =
            GateColumns::of(group.iter().map(|it| (it.token_id.as_deref(), it.fence.as_ref())));
        let rounds = rounds(group);
        let last_round = rounds.iter().max().copied().unwrap_or(-1);
        let events: Vec<&SubmittedEvent> = group.iter().flat_map(|sent| &sent.items).collect();
        // SQL arrays count from 1; a group has far fewer gates than an i32 can hold.
        let gate_of = |(sent, gate): (&Submission, &usize)| {
            vec![i32::try_from(gate + 1).unwrap_or(i32::MAX); sent.items.len()]
        };
        let gate: Vec<i32> = group.iter().zip(&gates.of).flat_map(gate_of).collect();
        let ids: Vec<Uuid> = events.iter().map(|it| it.request_id).collect();
        let digests = column_of(&events, |it| it.dedupe.digest.as_slice());
        let previous = column_of(&events, |it| it.dedupe.previous_hour.as_ref().map(|it| &it[..]));
        let payloads = column_of(&events, |it| it.payload_digest.as_slice());
        let observed = column_of(&events, |it| from_micros(it.observed_at_micros));
        let channels = column_of(&events, |it| &it.channel);
        let providers = column_of(&events, |it| &it.provider);
        let endpoints = column_of(&events, |it| &it.endpoint_identity);
        let senders = column_of(&events, |it| &it.sender_identity);
        let threads = column_of(&events, |it| it.thread_identity.as_deref());
        let tiers = column_of(&events, |it| it.policy_tier);
        let keys = column_of(&events, |it| &it.dedupe.key);
        let envelopes = column_of(&events, |it| &it.envelope);
        let parameters = parameters! {
            gates.tokens, gates.duties, gates.epochs, gates.instances, last_round, rounds, gate,
            ids, digests, previous, payloads, observed, channels, providers, endpoints, senders,
            threads, tiers, keys, envelopes
        };
        let rows = self.commits.query(&self.statements.commit, &parameters).await?;
        // The statement has committed by now, even if its answer is invalid.
        settle(group, &gates, &rows).map_err(SwitchboardError::or_happened)
    }
}

/// The distinct pairs of a token and a fence, each checked once.
#[derive(Default)]
pub(super) struct GateColumns<'a> {
    pub(super) tokens: Vec<Option<&'a str>>,
    pub(super) duties: Vec<Option<String>>,
    pub(super) epochs: Vec<Option<i64>>,
    pub(super) instances: Vec<Option<&'a str>>,
    /// The gate of each submission.
    of: Vec<usize>,
}

impl<'a> GateColumns<'a> {
    pub(super) fn of(
        submissions: impl Iterator<Item = (Option<&'a str>, Option<&'a IngestFence>)>,
    ) -> Self {
        let mut gates = Self::default();
        let mut known = BTreeMap::new();
        for (token, fence) in submissions {
            let shown = fence.map(|fence| (&fence.duty, fence.epoch, &fence.instance));
            let gate = *known.entry((token, shown)).or_insert_with(|| {
                gates.tokens.push(token);
                gates.duties.push(fence.map(|fence| fence.duty.to_string()));
                gates.epochs.push(fence.map(|fence| fence.epoch.as_i64()));
                gates.instances.push(fence.map(|fence| fence.instance.as_str()));
                gates.tokens.len() - 1
            });
            gates.of.push(gate);
        }
        gates
    }
}

/// Returns a value of each event.
fn column_of<'a, T>(events: &[&'a SubmittedEvent], of: impl Fn(&'a IngestEvent) -> T) -> Vec<T> {
    events.iter().map(|it| of(&it.event)).collect()
}

/// Returns the round of each event: it follows an earlier event whose key is its previous hour's.
fn rounds(group: &[Submission]) -> Vec<i32> {
    let keys = || group.iter().flat_map(|it| &it.items).map(|item| &item.event.dedupe);
    if keys().all(|key| key.previous_hour.is_none()) {
        return keys().map(|_| 0).collect();
    }
    let mut round_of: BTreeMap<&[u8; 32], i32> = BTreeMap::new();
    keys()
        .map(|key| {
            let earlier = key.previous_hour.as_ref().and_then(|hour| round_of.get(hour));
            let after = earlier.map_or(0, |round| round + 1);
            let same = round_of.get(&key.digest).copied().unwrap_or(0);
            round_of.insert(&key.digest, after.max(same));
            after.max(same)
        })
        .collect()
}

/// Reads why a gate is closed from a row of `item, verdict, epoch, instance, updated_at`.
pub(super) fn closed(
    row: &Row,
    verdict: &str,
    duty: Option<&str>,
) -> StorageResult<Option<SubmissionRejection>> {
    Ok(Some(match verdict {
        "ahead" => SubmissionRejection::BadFence(BadFence::EpochAhead),
        "full" => SubmissionRejection::BadFence(BadFence::TooMany),
        "fenced_by_all" => SubmissionRejection::Fenced(None),
        "fenced" => SubmissionRejection::Fenced(Some(NewestHold {
            duty: duty.unwrap_or_default().to_owned(),
            epoch: Epoch::from_i64(column(row, 2)?)?,
            instance: column(row, 3)?,
            updated_at: to_micros(column(row, 4)?),
        })),
        verdict => return Ok(ended(verdict).map(SubmissionRejection::TokenEnded)),
    }))
}

fn settle(
    group: &[Submission],
    gates: &GateColumns<'_>,
    rows: &[Row],
) -> StorageResult<Vec<SubmissionOutcome>> {
    let odd =
        |what: &str| SwitchboardError::unknown(Code::Damaged, format!("ingest_commit: {what}"));
    let mut shut: Vec<Option<SubmissionRejection>> = vec![None; gates.tokens.len()];
    let mut same: BTreeMap<usize, (Uuid, bool)> = BTreeMap::new();
    let mut stored: Option<i64> = None;
    for row in rows {
        match column::<&str>(row, 1)? {
            "same" => {
                same.insert(index(row)?, (column(row, 5)?, column(row, 6)?));
            }
            "stored" => stored = Some(column(row, 0)?),
            verdict => {
                let gate = index(row)?;
                let duty = gates.duties.get(gate).and_then(Option::as_deref);
                let why = closed(row, verdict, duty)?.ok_or_else(|| odd(verdict))?;
                *shut.get_mut(gate).ok_or_else(|| odd("gate"))? = Some(why);
            }
        }
    }
    let (mut number, mut fresh) = (0, 0);
    let mut answers = Vec::with_capacity(group.len());
    for (submission, gate) in group.iter().zip(&gates.of) {
        let first = number;
        number += submission.items.len();
        if let Some(why) = &shut[*gate] {
            answers.push(SubmissionOutcome::Rejected(why.clone()));
            continue;
        }
        let outcome = |(place, item): (usize, &SubmittedEvent)| match same.get(&(first + place)) {
            Some((request_id, reused)) => {
                EventOutcome { request_id: *request_id, duplicate: true, reused: *reused }
            }
            None => {
                fresh += 1;
                EventOutcome { request_id: item.request_id, duplicate: false, reused: false }
            }
        };
        answers.push(SubmissionOutcome::Stored(
            submission.items.iter().enumerate().map(outcome).collect(),
        ));
    }
    // Events without a row are new; their number must match.
    if stored != Some(fresh) {
        return Err(odd(&format!("{stored:?} stored, not {fresh}")));
    }
    Ok(answers)
}
