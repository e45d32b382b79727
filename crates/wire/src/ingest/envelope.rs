//! Fields of an `ingest.v1` envelope and the rules between them.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use super::dedupe::{self, KeyParts};
use super::{Fields, IngestEvent, InvalidEnvelope, Rules};
use crate::envelope::{self, JsonError, ObjectShape, RawJson, Reader};

const VERSION: &str = "ingest.v1";
const TIERS: [&str; 3] = ["default", "interactive", "high_priority"];

const ENVELOPE: ObjectShape =
    ObjectShape(&["schema_version", "source", "event", "sender", "payload"], &["control"]);
const SOURCE: ObjectShape = ObjectShape(&["channel", "provider", "endpoint_identity"], &[]);
const EVENT: ObjectShape =
    ObjectShape(&["external_event_id", "observed_at"], &["external_thread_id"]);
const SENDER: ObjectShape = ObjectShape(&["identity"], &["display_name"]);
const PAYLOAD: ObjectShape = ObjectShape(&["raw", "normalized_text"], &["attachments"]);
const ATTACHMENT: ObjectShape =
    ObjectShape(&["media_type", "storage_ref", "size_bytes"], &["filename", "width", "height"]);
const CONTROL: ObjectShape = ObjectShape(&[], &["idempotency_key", "trace_context", "policy_tier"]);

/// Fields read so far.
#[derive(Default)]
struct EventDraft<'a> {
    channel: Option<&'a str>,
    provider: Option<&'a str>,
    endpoint: Option<String>,
    event_id: Option<String>,
    thread: Option<String>,
    observed_at: Option<i64>,
    sender: Option<String>,
    raw: Option<RawJson<'a>>,
    text: Option<Cow<'a, [u8]>>,
    attachments: Option<[u8; 32]>,
    idempotency_key: Option<String>,
    tier: Option<&'static str>,
}

pub(super) fn read(bytes: &[u8], rules: &Rules) -> Result<IngestEvent, InvalidEnvelope> {
    let (draft, envelope) = envelope::read(VERSION, bytes, |reader| draft(reader, rules))?;
    draft.finish(envelope, rules).ok_or_else(|| InvalidEnvelope::missing(VERSION))
}

fn draft<'a>(reader: &mut Reader<'a>, rules: &'a Rules) -> Result<EventDraft<'a>, JsonError> {
    reader.keeps_unknown = rules.fields == Fields::Kept;
    let mut draft = EventDraft::default();
    reader.object(&ENVELOPE, |reader, name| match name {
        "schema_version" => reader.version(),
        "source" => source(reader, &mut draft, rules),
        "event" => reader.object(&EVENT, |reader, name| {
            match name {
                "external_event_id" => draft.event_id = reader.identity()?,
                "external_thread_id" => draft.thread = reader.nullable(Reader::identity)?,
                _ => draft.observed_at = reader.time()?,
            }
            Ok(())
        }),
        "sender" => reader.object(&SENDER, |reader, name| {
            match name {
                "identity" => draft.sender = reader.identity()?,
                _ => _ = reader.nullable(Reader::text)?,
            }
            Ok(())
        }),
        "payload" => reader.object(&PAYLOAD, |reader, name| {
            match name {
                "raw" => draft.raw = reader.kept()?,
                "normalized_text" => draft.text = reader.text()?,
                _ => draft.attachments = attachments(reader)?,
            }
            Ok(())
        }),
        _ => reader.object(&CONTROL, |reader, name| {
            match name {
                "idempotency_key" => draft.idempotency_key = reader.nullable(Reader::identity)?,
                "policy_tier" => draft.tier = reader.one_of(&TIERS)?,
                _ => _ = reader.kept()?,
            }
            Ok(())
        }),
    })?;
    Ok(draft)
}

fn source<'a>(
    reader: &mut Reader<'_>,
    draft: &mut EventDraft<'a>,
    rules: &'a Rules,
) -> Result<(), JsonError> {
    reader.object(&SOURCE, |reader, name| {
        match name {
            "channel" => draft.channel = reader.one_of(&rules.names)?,
            "provider" => draft.provider = reader.one_of(&rules.providers)?,
            _ => draft.endpoint = reader.identity()?,
        }
        Ok(())
    })?;
    let (Some(channel), Some(provider)) = (draft.channel, draft.provider) else {
        return Ok(());
    };
    let known = rules.channel(channel).map_or(&[][..], |known| &known.providers);
    if !known.iter().any(|known| known == provider) {
        let allowed = known.join(" or ");
        let says = format!("provider {provider} is not one of channel {channel}: {allowed}");
        reader.issue("invalid_source_provider", says);
    }
    Ok(())
}

/// Returns the digest of all attachments; `None` without any.
fn attachments(reader: &mut Reader<'_>) -> Result<Option<[u8; 32]>, JsonError> {
    let mut hash = Sha256::new();
    let count = reader.array(|reader| attachment(reader, &mut hash))?;
    Ok((count > 0).then(|| hash.finalize().into()))
}

fn attachment(reader: &mut Reader<'_>, hash: &mut Sha256) -> Result<(), JsonError> {
    let (mut media_type, mut storage_ref, mut filename) = (None, None, None);
    let (mut size, mut width, mut height) = (None, None, None);
    reader.object(&ATTACHMENT, |reader, name| {
        match name {
            "media_type" => media_type = reader.text()?,
            "storage_ref" => storage_ref = reader.text()?,
            "filename" => filename = reader.nullable(Reader::text)?,
            "size_bytes" => size = reader.integer(0)?,
            "width" => width = reader.nullable(|reader| reader.integer(1))?,
            _ => height = reader.nullable(|reader| reader.integer(1))?,
        }
        Ok(())
    })?;
    for text in [media_type, storage_ref, filename] {
        dedupe::optional(hash, text.as_deref());
    }
    for number in [size, width, height] {
        dedupe::optional(hash, number.map(u64::to_be_bytes).as_ref().map(<[u8; 8]>::as_slice));
    }
    Ok(())
}

impl EventDraft<'_> {
    /// Returns the event if all required fields are there.
    fn finish(self, envelope: String, rules: &Rules) -> Option<IngestEvent> {
        let payload_digest = self.payload_digest()?;
        let (channel, provider) = (self.channel?, self.provider?);
        let (endpoint_identity, sender_identity) = (self.endpoint?, self.sender?);
        let observed_at_micros = self.observed_at?;
        let parts = KeyParts {
            channel: rules.keyed(channel),
            provider,
            endpoint: &endpoint_identity,
            idempotency_key: self.idempotency_key.as_deref(),
            event_id: &self.event_id?,
            sender: &sender_identity,
            text: &self.text?,
            observed_at: observed_at_micros,
        };
        let dedupe = parts.dedupe();
        Some(IngestEvent {
            channel: channel.to_owned(),
            provider: provider.to_owned(),
            endpoint_identity,
            sender_identity,
            thread_identity: self.thread,
            policy_tier: self.tier.unwrap_or(TIERS[0]),
            observed_at_micros,
            dedupe,
            payload_digest,
            envelope,
        })
    }

    /// Hash of the content: sender, thread, text and attachments.
    fn payload_digest(&self) -> Option<[u8; 32]> {
        let mut hash = Sha256::new();
        let raw = self.raw.as_ref()?;
        dedupe::part(&mut hash, self.sender.as_ref()?.as_bytes());
        dedupe::optional(&mut hash, self.thread.as_deref().map(str::as_bytes));
        dedupe::part(&mut hash, self.text.as_ref()?);
        dedupe::json(&mut hash, raw.json.as_bytes(), raw.blanks);
        dedupe::optional(&mut hash, self.attachments.as_ref().map(<[u8; 32]>::as_slice));
        Some(hash.finalize().into())
    }
}
