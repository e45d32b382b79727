//! Heartbeats of a connector to the switchboard.
//!
//! A [`HeartbeatSender`] sends the status of a connector and its counters, once or at an interval.
//! Counters are fixed values or come from a file that the connector writes.
//!
//! ```no_run
//! use std::time::Duration;
//! use tenure_connector::{
//!     ConnectorStatus, CounterSource, HeartbeatClient, HeartbeatSender, SwitchboardUrl,
//! };
//!
//! # async fn example() -> Result<(), tenure_connector::ConnectorError> {
//! let url = SwitchboardUrl::parse("https://board.example")?;
//! let client = HeartbeatClient::new(url, Duration::from_secs(10));
//! let status = ConnectorStatus::new("telegram_bot", "bot-123", uuid::Uuid::new_v4());
//! let sender = HeartbeatSender { client, status, counters: CounterSource::default() };
//! let accepted = sender.send().await?;
//! println!("accepted at {}", accepted.server_time);
//! # Ok(())
//! # }
//! ```

mod client;
mod counters;
mod error;
mod sender;
mod status;

pub use client::{HeartbeatAccepted, HeartbeatClient, SwitchboardUrl};
pub use counters::{CounterSource, CounterValues, MAX_COUNT};
pub use error::ConnectorError;
pub use sender::{
    DEFAULT_INTERVAL, HeartbeatCommand, HeartbeatReport, HeartbeatSender, MAX_INTERVAL,
    MIN_INTERVAL,
};
pub use status::ConnectorStatus;
