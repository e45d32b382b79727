//! Notices for operators.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use tenure_core::Code;
use tenure_core::text::counted;
use uuid::Uuid;

use crate::error::SwitchboardError;
use crate::storage::HistoryPruneReport;

/// Notice for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerNotice {
    /// The server accepts connections.
    Listening {
        /// Its address.
        address: SocketAddr,
        /// Whether TLS is used.
        tls: bool,
    },
    /// No tokens exist: only this machine has access.
    Open,
    /// Tokens exist now and are required.
    TokensRequired,
    /// The server is shutting down.
    Draining,
    /// Some requests did not finish in time.
    CutOff,
    /// The server has stopped.
    Stopped,
    /// An address used up its share of the connections.
    AddressFull {
        /// The address; the network of an IPv6 address.
        address: String,
        /// Its limit.
        most: usize,
    },
    /// The store stopped answering.
    StoreLost(SwitchboardError),
    /// The store is full: submissions are rejected.
    StoreFull(SwitchboardError),
    /// The store answers and accepts writes again.
    StoreFound,
    /// Applying retention or storing token usage failed; it will be retried.
    UpkeepFailed(SwitchboardError),
    /// New certificates are in use.
    CertificateChanged,
    /// New certificates cannot be used; the previous ones stay in use.
    CertificateUnusable(SwitchboardError),
    /// Other replicas cannot reach this one: its address is not configured.
    Unadvertised,
    /// The address of this replica could not be announced; it will be retried.
    NotAnnounced(SwitchboardError),
    /// A heartbeat changed something about a connector.
    Connector {
        /// The connector.
        connector: String,
        /// The change.
        news: ConnectorEvent,
    },
    /// A heartbeat was accepted but not written to the history.
    HistoryUnwritten {
        /// The connector.
        connector: String,
        /// Error of the store.
        why: String,
        /// Further heartbeats since the last notice.
        besides: u64,
    },
    /// This replica started counting statistics.
    Counting {
        /// Epoch of its hold.
        epoch: u64,
    },
    /// This replica stopped counting statistics.
    NotCounting,
    /// Statistics could not be counted; it will be retried.
    StatisticsFailed(SwitchboardError),
    /// Data past its retention was deleted.
    Tidied(HistoryPruneReport),
}

/// Change of a connector, seen in a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectorEvent {
    /// The connector is new.
    Registered,
    /// The connector was archived and sends heartbeats again.
    Revived,
    /// Another instance replaced the current one.
    Replaced {
        /// The previous instance.
        from: Uuid,
        /// The new instance.
        to: Uuid,
    },
    /// A counter went down without a new instance.
    CountersReset,
    /// A counter jumped by the size of a Unix time, for the first time of an instance.
    CounterJumped,
    /// The clock of its host is off by this many microseconds; negative if it is ahead.
    ClockOff(i64),
    /// The clock of its host is right again.
    ClockRight,
}

/// Returns the name of a connector, shortened for a log line.
pub(crate) fn connector_name(connector_type: &str, endpoint_identity: &str) -> String {
    const MAX_NAME_CHARS: usize = 100;
    let cut = |text: &str| match text.char_indices().nth(MAX_NAME_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    };
    format!("{} {}", cut(connector_type), cut(endpoint_identity))
}

/// Severity of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeLevel {
    /// Nothing to do.
    Info,
    /// Something may need attention.
    Warn,
    /// Requests fail.
    Error,
}

/// Sink for notices to operators; must not block.
pub type NoticeSink = Arc<dyn Fn(ServerNotice) + Send + Sync>;

/// Returns the default sink: it emits each notice as a `tracing` event with the fields `event`
/// (as in the log of `tenure serve`) and `code`.
pub fn tracing_sink() -> NoticeSink {
    Arc::new(|notice| {
        let (event, code) = (notice.event(), notice.code().map(Code::as_str));
        match notice.level() {
            NoticeLevel::Info => tracing::info!(event, code, "{notice}"),
            NoticeLevel::Warn => tracing::warn!(event, code, "{notice}"),
            NoticeLevel::Error => tracing::error!(event, code, "{notice}"),
        }
    })
}

impl ServerNotice {
    /// Returns the severity.
    pub fn level(&self) -> NoticeLevel {
        self.classify().0
    }

    /// Returns the stable name of the event.
    pub fn event(&self) -> &'static str {
        self.classify().1
    }

    fn classify(&self) -> (NoticeLevel, &'static str) {
        match self {
            Self::Listening { .. } => (NoticeLevel::Info, "listening"),
            Self::Open => (NoticeLevel::Warn, "open"),
            Self::TokensRequired => (NoticeLevel::Info, "tokens_required"),
            Self::Draining => (NoticeLevel::Info, "draining"),
            Self::CutOff => (NoticeLevel::Warn, "cut_off"),
            Self::Stopped => (NoticeLevel::Info, "stopped"),
            Self::AddressFull { .. } => (NoticeLevel::Warn, "address_full"),
            Self::StoreLost(_) => (NoticeLevel::Error, "store_lost"),
            Self::StoreFull(_) => (NoticeLevel::Error, "store_full"),
            Self::StoreFound => (NoticeLevel::Info, "store_found"),
            Self::UpkeepFailed(_) => (NoticeLevel::Warn, "upkeep_failed"),
            Self::Unadvertised => (NoticeLevel::Info, "unadvertised"),
            Self::NotAnnounced(_) => (NoticeLevel::Warn, "not_announced"),
            Self::CertificateChanged => (NoticeLevel::Info, "certificate_changed"),
            Self::CertificateUnusable(_) => (NoticeLevel::Warn, "certificate_unusable"),
            Self::Connector { news, .. } => match news {
                ConnectorEvent::Registered => (NoticeLevel::Info, "connector_registered"),
                ConnectorEvent::Revived => (NoticeLevel::Info, "connector_revived"),
                ConnectorEvent::Replaced { .. } => {
                    (NoticeLevel::Info, "connector_instance_changed")
                }
                ConnectorEvent::CountersReset => (NoticeLevel::Warn, "connector_counters_reset"),
                ConnectorEvent::CounterJumped => (NoticeLevel::Warn, "connector_counter_jumped"),
                ConnectorEvent::ClockOff(_) => (NoticeLevel::Warn, "connector_clock_off"),
                ConnectorEvent::ClockRight => (NoticeLevel::Info, "connector_clock_right"),
            },
            Self::HistoryUnwritten { .. } => (NoticeLevel::Warn, "history_unwritten"),
            Self::Counting { .. } => (NoticeLevel::Info, "statistics_here"),
            Self::NotCounting => (NoticeLevel::Warn, "statistics_not_here"),
            Self::StatisticsFailed(_) => (NoticeLevel::Warn, "statistics_failed"),
            Self::Tidied(_) => (NoticeLevel::Info, "statistics_tidied"),
        }
    }

    /// Returns the error code, if the notice is about an error.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::StoreLost(error)
            | Self::StoreFull(error)
            | Self::UpkeepFailed(error)
            | Self::NotAnnounced(error)
            | Self::StatisticsFailed(error)
            | Self::CertificateUnusable(error) => Some(error.code()),
            _ => None,
        }
    }
}

impl fmt::Display for ServerNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listening { address, tls: false } => write!(f, "listening on http://{address}"),
            Self::Listening { address, tls: true } => write!(f, "listening on https://{address}"),
            Self::Open => {
                f.write_str("open: no tokens exist; only clients on this machine are admitted")
            }
            Self::TokensRequired => f.write_str("a token exists: tokens are required from now on"),
            Self::Draining => f.write_str("draining: open requests finish first"),
            Self::CutOff => f.write_str("some requests did not finish in time and were cut off"),
            Self::Stopped => f.write_str("stopped: every answered request is stored"),
            Self::AddressFull { address, most } => write!(
                f,
                "{address} has {most} connections, which is the limit: if it is a proxy, set \
                 --trusted-proxies; else raise --max-connections-per-address",
            ),
            Self::StoreLost(error) => write!(f, "the store does not answer: {error}"),
            Self::StoreFull(error) => write!(f, "submissions are rejected: {error}"),
            Self::StoreFound => f.write_str("the store answers again"),
            Self::Unadvertised => f.write_str(
                "other replicas cannot reach this one: messages of its SSE sessions that arrive \
                 there are lost; set --advertise",
            ),
            Self::NotAnnounced(error) => {
                write!(f, "this replica is not announced to others, retrying: {error}")
            }
            Self::UpkeepFailed(error) => write!(f, "upkeep failed, retrying: {error}"),
            Self::CertificateChanged => f.write_str("new certificates are used from now on"),
            Self::CertificateUnusable(error) => {
                write!(f, "new certificates cannot be used, the previous ones stay: {error}")
            }
            Self::Connector { connector, news } => write!(f, "connector {connector}: {news}"),
            Self::HistoryUnwritten { connector, why, besides } => {
                write!(f, "connector {connector}: a heartbeat was accepted, but is not in the")?;
                let others = counted(*besides, "other", "others");
                write!(f, " history ({others} since the last message): {why}")
            }
            Self::Counting { epoch } => {
                write!(f, "this replica counts the statistics (epoch {epoch})")
            }
            Self::NotCounting => f.write_str("this replica no longer counts the statistics"),
            Self::StatisticsFailed(error) => {
                write!(f, "statistics could not be counted, retrying: {error}")
            }
            Self::Tidied(report) => {
                write!(f, "deleted data past its retention: {}", deleted_rows(report))
            }
        }
    }
}

/// Returns what was deleted, as a list for a log line.
fn deleted_rows(report: &HistoryPruneReport) -> String {
    let rows = [
        (report.heartbeat_partitions_dropped, "day of heartbeats", "days of heartbeats"),
        (report.heartbeat_rows_deleted, "heartbeat", "heartbeats"),
        (report.hourly_rows_deleted, "hourly count", "hourly counts"),
        (report.daily_rows_deleted, "daily count", "daily counts"),
        (report.fanout_rows_deleted, "daily fanout count", "daily fanout counts"),
        (report.outcome_rows_deleted, "outcome", "outcomes"),
        (report.instances_deleted, "instance", "instances"),
    ];
    let rows = rows.into_iter().filter(|(count, ..)| *count > 0);
    let rows: Vec<_> = rows.map(|(count, one, many)| counted(count, one, many)).collect();
    rows.join(", ")
}

impl fmt::Display for ConnectorEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registered => f.write_str("registered by its first heartbeat"),
            Self::Revived => f.write_str("unarchived by a heartbeat"),
            Self::Replaced { from, to } => write!(f, "instance {to} replaced {from}"),
            Self::CountersReset => {
                f.write_str("a counter decreased without a new instance; counting restarts at 0")
            }
            Self::CounterJumped => f.write_str(
                "a counter jumped by the size of a Unix time, as if a client had added the \
                 creation times of its counters: the jump is ignored, later increments count",
            ),
            Self::ClockOff(drift) => write!(f, "{}", Drift(*drift)),
            Self::ClockRight => f.write_str("its clock is right again"),
        }
    }
}

/// Clock drift in microseconds: received minus sent.
pub(crate) struct Drift(pub(crate) i64);

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.unsigned_abs() as f64 / 1e6;
        match self.0 {
            0.. => write!(f, "its clock is {seconds:.1} s behind, or the heartbeat was delayed"),
            _ => write!(f, "its clock is {seconds:.1} s ahead"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::sync::Mutex;

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    use super::*;
    use crate::error::SwitchboardError;

    /// Collects level and fields of events.
    #[derive(Clone, Default)]
    struct Collector(Arc<Mutex<Vec<Collected>>>);
    type Collected = (Level, Vec<String>);

    impl Visit for Collector {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            let text = format!("{field}={value:?}");
            self.0.lock().unwrap().last_mut().unwrap().1.push(text);
        }
    }

    impl Subscriber for Collector {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            self.0.lock().unwrap().push((*event.metadata().level(), Vec::new()));
            event.record(&mut self.clone());
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn without_a_sink_notices_are_tracing_events() {
        let collector = Collector::default();
        let log = crate::ServerSettings::default().log;
        tracing::subscriber::with_default(collector.clone(), || {
            log(ServerNotice::Draining);
            log(ServerNotice::StoreFull(SwitchboardError::refused(Code::Full, "disk")));
        });
        let events = std::mem::take(&mut *collector.0.lock().unwrap());
        let levels: Vec<_> = events.iter().map(|(level, _)| *level).collect();
        assert_eq!(levels, [Level::INFO, Level::ERROR]);
        let message = format!("message={}", ServerNotice::Draining);
        assert_eq!(events[0].1, [message, "event=\"draining\"".to_owned()]);
        assert!(events[1].1.contains(&"code=\"ST008\"".to_owned()), "{events:?}");
    }
}
