//! What operators must know.

use std::fmt;
use std::net::SocketAddr;

use tenure_core::Code;
use tenure_core::text::counted;
use uuid::Uuid;

use crate::error::SwitchboardError;
use crate::storage::{Name, Tidied};

/// What operators must know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// It serves.
    Listening {
        /// Where.
        address: SocketAddr,
        /// Whether connections are encrypted.
        tls: bool,
    },
    /// There are no tokens.
    Open,
    /// There are tokens now.
    TokensRequired,
    /// It was told to end.
    Draining,
    /// Some requests did not finish in time.
    CutOff,
    /// It has ended.
    Stopped,
    /// An address has used up its share of the connections.
    AddressFull {
        /// Which one; of IPv6, its network.
        address: String,
        /// How many it may have.
        most: usize,
    },
    /// The store does not answer any more.
    StoreLost(SwitchboardError),
    /// The store has no room left: what is submitted is refused.
    StoreFull(SwitchboardError),
    /// The store answers again, and takes what it is given.
    StoreFound,
    /// Retention or the use of tokens could not be stored; it is tried again.
    UpkeepFailed(SwitchboardError),
    /// New certificates are used from now on.
    CertificateChanged,
    /// New certificates cannot be used; the ones before are.
    CertificateUnusable(SwitchboardError),
    /// Other replicas cannot reach this one: nobody said where it is.
    Unadvertised,
    /// It could not be said where this replica is; it is tried again.
    NotAnnounced(SwitchboardError),
    /// A connector was heard.
    Connector {
        /// Which one.
        connector: ConnectorName,
        /// What is to be known of it.
        news: News,
    },
    /// A heartbeat was accepted and is not in the history.
    HistoryUnwritten {
        /// Whose.
        connector: ConnectorName,
        /// Why, as the store says.
        why: String,
        /// How many there were besides since this was said last.
        besides: u64,
    },
    /// This replica counts statistics from now on.
    Counting {
        /// Under this epoch.
        epoch: u64,
    },
    /// This replica does not count statistics any more.
    NotCounting,
    /// Statistics could not be counted; it is tried again.
    StatisticsFailed(SwitchboardError),
    /// What was past its retention was taken away.
    Tidied(Tidied),
}

/// What is to be known of a connector that was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Nothing was known of it before.
    Registered,
    /// It was archived, and is no longer.
    Revived,
    /// Another process stands for it.
    Replaced {
        /// The one before.
        from: Uuid,
        /// The one from now on.
        to: Uuid,
    },
    /// A counter went down, and no process began.
    CountersReset,
    /// A counter of a process jumped by the size of a Unix time, for the first time.
    CounterJumped,
    /// The clock of its host is off, by so many microseconds; below zero it is ahead.
    ClockOff(i64),
    /// The clock of its host is right again.
    ClockRight,
}

/// As much of a connector's name as a line of a log has room for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectorName(String);

const LONGEST: usize = 100;

impl ConnectorName {
    /// Of this one.
    pub fn of(name: &Name) -> Self {
        let Name { connector_type, endpoint_identity } = name;
        Self(format!("{} {}", cut(connector_type), cut(endpoint_identity)))
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

impl fmt::Display for ConnectorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Notice {
    /// The code of what went wrong, if something did.
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

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listening { address, tls: false } => write!(f, "listening on http://{address}"),
            Self::Listening { address, tls: true } => write!(f, "listening on https://{address}"),
            Self::Open => f.write_str("open: no tokens; only this machine can reach it"),
            Self::TokensRequired => f.write_str("there are tokens: they are required from now on"),
            Self::Draining => f.write_str("draining: requests under way are finished"),
            Self::CutOff => f.write_str("some requests did not finish in time and were cut off"),
            Self::Stopped => f.write_str("stopped: everything that was answered is stored"),
            Self::AddressFull { address, most } => write!(
                f,
                "{address} has {most} connections and gets no more: where it is a proxy, say so \
                 with --trusted-proxies, or set --max-connections-per-address",
            ),
            Self::StoreLost(error) => write!(f, "the store does not answer: {error}"),
            Self::StoreFull(error) => write!(f, "nothing can be stored: {error}"),
            Self::StoreFound => f.write_str("the store answers again"),
            Self::Unadvertised => f.write_str(
                "other replicas cannot reach this one: a message of an SSE session that comes to \
                 another is lost; say where it is with --advertise",
            ),
            Self::NotAnnounced(error) => {
                write!(f, "other replicas are not told of this one, it is tried again: {error}")
            }
            Self::UpkeepFailed(error) => write!(f, "upkeep failed, it is tried again: {error}"),
            Self::CertificateChanged => f.write_str("new certificates are used from now on"),
            Self::CertificateUnusable(error) => {
                write!(f, "new certificates cannot be used, the ones before are: {error}")
            }
            Self::Connector { connector, news } => write!(f, "connector {connector}: {news}"),
            Self::HistoryUnwritten { connector, why, besides } => {
                write!(f, "connector {connector}: a heartbeat was accepted, but is not in the")?;
                let others = counted(*besides, "other", "others");
                write!(f, " history ({others} since this was said last): {why}")
            }
            Self::Counting { epoch } => {
                write!(f, "statistics are counted here, under epoch {epoch}")
            }
            Self::NotCounting => f.write_str("statistics are not counted here any more"),
            Self::StatisticsFailed(error) => {
                write!(f, "statistics could not be counted, it is tried again: {error}")
            }
            Self::Tidied(tidied) => {
                let t = tidied;
                f.write_str("past their retention and taken away:")?;
                for (count, what) in [
                    (t.heartbeat_partitions_dropped, "days of heartbeats"),
                    (t.heartbeat_rows_deleted, "heartbeats"),
                    (t.hourly_rows_deleted, "hours"),
                    (t.daily_rows_deleted, "days"),
                    (t.fanout_rows_deleted, "days of fanout"),
                    (t.outcome_rows_deleted, "outcomes"),
                    (t.instances_deleted, "instances"),
                ] {
                    if count > 0 {
                        write!(f, " {count} {what};")?;
                    }
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registered => f.write_str("it was heard for the first time and is registered"),
            Self::Revived => f.write_str("it was archived, and is heard again"),
            Self::Replaced { from, to } => {
                write!(f, "instance {to} stands for it, instead of {from}")
            }
            Self::CountersReset => {
                f.write_str("a counter went down without a new instance, and is counted from 0")
            }
            Self::CounterJumped => f.write_str(
                "a counter jumped by the size of a Unix time, as clients do that add up when \
                 counters were made: the jump is left out, what is counted from there on is not",
            ),
            Self::ClockOff(drift) => write!(f, "{}", Drift(*drift)),
            Self::ClockRight => f.write_str("its clock is right again"),
        }
    }
}

/// How far a clock is off, in microseconds: received minus sent.
pub(crate) struct Drift(pub(crate) i64);

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.unsigned_abs() as f64 / 1e6;
        match self.0 {
            0.. => write!(f, "its clock is {seconds:.1} s behind, or the heartbeat was on its way"),
            _ => write!(f, "its clock is {seconds:.1} s ahead"),
        }
    }
}
