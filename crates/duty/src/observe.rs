//! Observers of a member: logs and metrics.

use std::fmt::Debug;
use std::time::Duration;

use tenure_core::{DutyId, Epoch, GroupName, Hold, InstanceId, LogLevel, Record, StoreError};

use crate::guard::PutOutcome;

tenure_core::text_enum! {
    /// Kind of a store call, as metrics name it.
    pub enum Operation {
        Session "session" "A session was opened or closed."
        Acquire "acquire" "Duties were claimed."
        Renew "renew" "The session was kept alive."
        Release "release" "Duties were given back."
        Look "look" "The group was read, or its document was replaced."
    }
}

/// A duty that is held now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldDuty {
    /// The duty.
    pub duty: DutyId,
    /// Its epoch.
    pub epoch: Epoch,
}

/// Observer of everything that a member of a group does. The thread that renews calls it, so it
/// must return at once and never block.
pub trait Observer: Debug + Send + Sync + 'static {
    /// Called at a transition. `unix_ms` is the wall clock beside the record's own.
    fn recorded(&self, _group: &GroupName, _record: &Record, _unix_ms: u64) {}

    /// Called when a request to the store has ended.
    fn store_called(&self, _group: &GroupName, _operation: Operation, _took: Duration, _ok: bool) {}

    /// Called when a keep-alive was confirmed, with the time that was left until the deadline.
    fn renewed(&self, _group: &GroupName, _margin_left: Duration) {}

    /// Called with the held duties after a change.
    fn holding(&self, _group: &GroupName, _holds: &[HeldDuty]) {}

    /// Called when a resource or the store refused a write under an older epoch.
    fn fenced(&self, _group: &GroupName, _duty: &DutyId) {}

    /// Called where the work on a duty ran, when a write of its checkpoint has ended.
    fn committed(&self, _hold: &Hold, _result: &Result<PutOutcome, StoreError>) {}

    /// Called where the work on a duty ran, when it has ended with this error.
    fn work_failed(&self, _group: &GroupName, _duty: &DutyId, _epoch: Epoch, _error: &str) {}
}

/// Returns why a checkpoint was not stored; empty if it was.
pub fn commit_refusal(result: &Result<PutOutcome, StoreError>) -> String {
    match result {
        Ok(PutOutcome::Stored(_)) => String::new(),
        Ok(PutOutcome::Conflict { newest }) => format!("version {newest} is stored"),
        Err(error) => error.to_string(),
    }
}

/// The default observer: emits a [`tracing`] event for each record and for every failure, with the
/// event names of the `tenure` binary's log.
#[derive(Clone, Copy, Debug, Default)]
pub struct TracingObserver;

impl Observer for TracingObserver {
    fn recorded(&self, group: &GroupName, record: &Record, _unix_ms: u64) {
        macro_rules! emit {
            ($level:ident) => {
                tracing::$level!(
                    target: "tenure",
                    event = record.change.as_str(),
                    group = group.as_str(),
                    duty = record.duty.as_ref().map(DutyId::as_str),
                    epoch = record.epoch.map(Epoch::get),
                    instance = record.instance.as_str(),
                    other = record.other.as_ref().map(InstanceId::as_str),
                    reason = &*record.reason,
                )
            };
        }
        match record.change.level() {
            LogLevel::Error => emit!(error),
            LogLevel::Warn => emit!(warn),
            LogLevel::Info => emit!(info),
            LogLevel::Debug => emit!(debug),
        }
    }

    fn store_called(&self, group: &GroupName, operation: Operation, took: Duration, ok: bool) {
        if !ok {
            let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            let (group, operation) = (group.as_str(), operation.as_str());
            tracing::warn!(
                target: "tenure", event = "store_call_failed", group, operation, took_ms
            );
        }
    }

    fn fenced(&self, group: &GroupName, duty: &DutyId) {
        let (group, duty) = (group.as_str(), duty.as_str());
        tracing::error!(target: "tenure", event = "fenced", group, duty);
    }

    fn committed(&self, hold: &Hold, result: &Result<PutOutcome, StoreError>) {
        let (group, duty) = (hold.duty.group.as_str(), hold.duty.id.as_str());
        let epoch = hold.epoch.get();
        match result {
            Ok(PutOutcome::Stored(version)) => {
                let version = version.get();
                tracing::debug!(target: "tenure", event = "committed", group, duty, epoch, version);
            }
            refused => {
                let reason = &*commit_refusal(refused);
                tracing::warn!(
                    target: "tenure", event = "commit_refused", group, duty, epoch, reason
                );
            }
        }
    }

    fn work_failed(&self, group: &GroupName, duty: &DutyId, epoch: Epoch, error: &str) {
        let (group, duty, epoch) = (group.as_str(), duty.as_str(), epoch.get());
        tracing::error!(target: "tenure", event = "work_failed", group, duty, epoch, error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;
    use std::sync::{Arc, Mutex};

    use tenure_core::{Change, Code, DutyKey, LocalInstant, Mark, Nonce, Version};
    use tracing::field::{Field, Visit};
    use tracing::span;

    /// Subscriber that stores events as lines of text.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    struct Fields(String);

    impl Visit for Fields {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            let _ = write!(self.0, " {}={value:?}", field.name());
        }
    }

    impl tracing::Subscriber for Lines {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            let mut fields = Fields(event.metadata().level().to_string());
            event.record(&mut fields);
            self.0.lock().unwrap().push(fields.0);
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    #[test]
    fn records_and_failures_become_events() {
        let lines = Lines::default();
        let (group, duty) = (GroupName::new("g").unwrap(), DutyId::new("d").unwrap());
        let record = Record {
            at: LocalInstant::from_nanos(0),
            change: Change::Revoked,
            instance: InstanceId::new("a").unwrap(),
            duty: Some(duty.clone()),
            epoch: Some(Epoch::new(7).unwrap()),
            other: None,
            reason: "fenced".into(),
        };
        tracing::subscriber::with_default(lines.clone(), || {
            let observer: &dyn Observer = &TracingObserver;
            observer.recorded(&group, &record, 0);
            observer.store_called(&group, Operation::Renew, Duration::from_millis(5), true);
            observer.store_called(&group, Operation::Renew, Duration::from_millis(5), false);
            observer.fenced(&group, &duty);
            observer.work_failed(&group, &duty, Epoch::new(7).unwrap(), "no disk");
            let hold = Hold {
                duty: DutyKey::new("g", "d").unwrap(),
                epoch: Epoch::new(7).unwrap(),
                instance: InstanceId::new("a").unwrap(),
                nonce: Nonce::from_entropy(1),
                mark: Mark::default(),
            };
            let version = Version::new(3).unwrap();
            observer.committed(&hold, &Ok(PutOutcome::Stored(version)));
            observer.committed(&hold, &Ok(PutOutcome::Conflict { newest: version }));
            observer.committed(&hold, &Err(StoreError::refused(Code::Fenced, "g/d")));
        });
        assert_eq!(
            *lines.0.lock().unwrap(),
            [
                "ERROR event=\"revoked\" group=\"g\" duty=\"d\" epoch=7 instance=\"a\" \
                 reason=\"fenced\"",
                "WARN event=\"store_call_failed\" group=\"g\" operation=\"renew\" took_ms=5",
                "ERROR event=\"fenced\" group=\"g\" duty=\"d\"",
                "ERROR event=\"work_failed\" group=\"g\" duty=\"d\" epoch=7 error=\"no disk\"",
                "DEBUG event=\"committed\" group=\"g\" duty=\"d\" epoch=7 version=3",
                "WARN event=\"commit_refused\" group=\"g\" duty=\"d\" epoch=7 \
                 reason=\"version 3 is stored\"",
                "WARN event=\"commit_refused\" group=\"g\" duty=\"d\" epoch=7 \
                 reason=\"ST020: the hold is no longer valid: g/d (nothing was changed)\"",
            ]
        );
    }
}
