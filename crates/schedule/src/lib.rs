//! Schedules: when a command is due, and what to do about an occurrence.
//!
//! - [`RunSchedule`] is a cron expression in a time zone, or an aligned period. It computes
//!   occurrences.
//! - [`decide`] compares the stored record of a schedule with a time, and says what comes next.
//!
//! Time is an argument everywhere; nothing here reads a clock. Times are milliseconds since 1970.
//!
//! Why: docs/decisions/0050-cron-expressions-and-daylight-saving-time.md

mod cron;
mod decide;
mod period;
mod schedule;

pub use decide::{
    InterruptedPolicy, MAX_CATCH_UP, MissedPolicy, SchedulePolicy, ScheduleStep, anchor, decide,
};
pub use schedule::{ClockChange, RunSchedule, utc};
