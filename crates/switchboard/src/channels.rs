//! Cached list of channels.
//!
//! Why: docs/decisions/0042-channels-are-reread-before-refusing.md

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tenure_core::{Clock, LocalInstant};
use tenure_store::BootClock;
use tenure_wire::ingest::{self, Fields, IngestEvent, InvalidEnvelope, Rules};
use tokio::sync::Mutex;

use crate::error::SwitchboardError;
use crate::storage::Storage;

/// Maximum age of the list: a removed channel is accepted no longer than this.
const MAX_RULES_AGE: Duration = Duration::from_secs(5);

/// List of channels, read again when it is old or lacks the source of an event.
#[derive(Debug)]
pub(crate) struct Channels {
    storage: Arc<dyn Storage>,
    fields: Fields,
    /// The list, and the time at which it was requested from the store.
    known: RwLock<Option<(Arc<Rules>, LocalInstant)>>,
    /// Held by the request that queries the store, while others wait.
    asking: Mutex<()>,
}

impl Channels {
    pub(crate) fn new(storage: Arc<dyn Storage>, fields: Fields) -> Self {
        Self { storage, fields, known: RwLock::default(), asking: Mutex::default() }
    }

    /// Returns the list, at most [`MAX_RULES_AGE`] old.
    pub(crate) async fn current(&self) -> Result<Arc<Rules>, SwitchboardError> {
        self.rules_if(|asked| BootClock.now().since(asked) <= MAX_RULES_AGE).await
    }

    async fn rules_if(
        &self,
        is_current: impl Fn(LocalInstant) -> bool,
    ) -> Result<Arc<Rules>, SwitchboardError> {
        let known = || {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner).clone();
            known.filter(|(_, asked)| is_current(*asked)).map(|(rules, _)| rules)
        };
        if let Some(rules) = known() {
            return Ok(rules);
        }
        let _turn = self.asking.lock().await;
        if let Some(rules) = known() {
            return Ok(rules);
        }
        let asked = BootClock.now();
        let rules = Arc::new(Rules::new(self.storage.channels().await?, self.fields));
        let known = (Arc::clone(&rules), asked);
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Some(known);
        Ok(rules)
    }

    pub(crate) async fn reader(&self) -> Result<EnvelopeReader<'_>, SwitchboardError> {
        let began = BootClock.now();
        Ok(EnvelopeReader { channels: self, rules: self.current().await?, began })
    }
}

/// Reads the envelopes of one request.
pub(crate) struct EnvelopeReader<'a> {
    channels: &'a Channels,
    rules: Arc<Rules>,
    began: LocalInstant,
}

impl EnvelopeReader<'_> {
    /// Reads an envelope. Only a list at least as new as the request rejects its source, so every
    /// replica accepts a channel that was added before the request.
    pub(crate) async fn read(
        &mut self,
        bytes: &[u8],
    ) -> Result<Result<IngestEvent, InvalidEnvelope>, SwitchboardError> {
        let read = ingest::read_by(bytes, &self.rules);
        match &read {
            Err(invalid) if invalid.is_about_source() => {}
            _ => return Ok(read),
        }
        let began = self.began;
        let newer = self.channels.rules_if(|asked| asked >= began).await?;
        if newer == self.rules {
            return Ok(read);
        }
        self.rules = newer;
        Ok(ingest::read_by(bytes, &self.rules))
    }
}
