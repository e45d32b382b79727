//! Events for all measurements.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use tenure_wire::ingest::{IngestEvent, read};

/// Generator of envelopes of about half a kilobyte, each with a new id.
#[derive(Default)]
pub struct Bodies {
    next: AtomicU64,
}

impl Bodies {
    /// Returns one envelope, or an array of several.
    pub fn next(&self, size: usize) -> Vec<u8> {
        let first = self.next.fetch_add(size as u64, Ordering::Relaxed);
        if size == 1 {
            return envelope(first).into_bytes();
        }
        let mut body = String::with_capacity(size * 640);
        for id in first..first + size as u64 {
            body.push(if id == first { '[' } else { ',' });
            body.push_str(&envelope(id));
        }
        body.push(']');
        body.into_bytes()
    }

    /// Returns events as the switchboard reads them.
    pub fn events(&self, count: usize) -> Result<Vec<IngestEvent>> {
        let first = self.next.fetch_add(count as u64, Ordering::Relaxed);
        let ids = first..first + count as u64;
        ids.map(|id| read(envelope(id).as_bytes()).map_err(|error| anyhow::anyhow!("{error}")))
            .collect()
    }
}

fn envelope(id: u64) -> String {
    let text = "The quick brown fox jumps over the lazy dog.";
    let (bot, chat, user) = (id % 16, id % 1000, id % 5000);
    [
        r#"{"schema_version":"ingest.v1","source":{"channel":"telegram","provider":"telegram","#,
        &format!(r#""endpoint_identity":"bot-{bot}"}},"event":{{"external_event_id":"{id:012}","#),
        &format!(r#""external_thread_id":"chat-{chat}","observed_at":"2026-02-15T10:30:00.1Z"}},"#),
        &format!(r#""sender":{{"identity":"user-{user}"}},"payload":{{"raw":{{"update_id":{id},"#),
        &format!(r#""message":{{"message_id":{id},"date":1771151400,"chat":{{"id":{chat},"#),
        &format!(r#""type":"private"}},"text":"{text}"}}}},"normalized_text":"{text}"}},"#),
        r#""control":{"policy_tier":"default"}}"#,
    ]
    .concat()
}
