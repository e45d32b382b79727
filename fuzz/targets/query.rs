//! Any query is understood or refused, and what is understood is within its limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_wire::ingest::inbox_query;

fuzz_target!(|query: &str| {
    match inbox_query(query) {
        Ok(words) => {
            assert!(words.after >= 0 && (1..=1_000).contains(&words.limit) && words.wait <= 30);
            let texts = [&words.channel, &words.endpoint, &words.sender, &words.thread];
            for text in texts.into_iter().flatten() {
                assert!((1..=1_024).contains(&text.len()) && !text.contains('\0'));
            }
            // Every parameter that is understood may be there once.
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
