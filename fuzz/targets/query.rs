//! Any query is accepted or rejected, and accepted values are within their limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_wire::ingest::{InboxQuery, inbox_query};

fuzz_target!(|query: &str| {
    match inbox_query(query) {
        Ok((read, wait)) => {
            assert!(read.after.position >= 0 && (1..=1_000).contains(&read.limit) && wait <= 30);
            let InboxQuery { channel, endpoint_identity, sender_identity, .. } = &read;
            let texts = [channel, endpoint_identity, sender_identity, &read.thread_identity];
            for text in texts.into_iter().flatten() {
                assert!((1..=1_024).contains(&text.len()) && !text.contains('\0'));
            }
            // No accepted parameter may occur twice.
            if !query.trim_matches('&').is_empty() {
                assert!(inbox_query(&format!("{query}&{query}")).is_err());
            }
        }
        Err(bad) => {
            let message = bad.to_string();
            assert!(message.len() < 1_000 && !message.contains(char::is_control));
        }
    }
});
