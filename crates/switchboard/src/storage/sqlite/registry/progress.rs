//! How far counting is.

use rusqlite::Connection;

/// The one row of progress.
pub(super) struct Progress {
    /// Beats up to this id were counted.
    pub(super) counted_beat: i64,
    /// Acknowledgements up to this number were counted.
    pub(super) counted_ack: i64,
    /// Under which hold it was counted last.
    pub(super) epoch: i64,
    /// Where the periods began when they were counted last, in the order of `Period::ALL`.
    pub(super) since: [i64; 3],
    /// From this day on the history has every beat.
    pub(super) beats_since: i64,
}

pub(super) fn progress(db: &Connection) -> rusqlite::Result<Progress> {
    let sql = "SELECT counted_beat, counted_ack, epoch, since_24h, since_7d, since_30d,
            beats_since
        FROM connector_stats_progress";
    db.prepare_cached(sql)?.query_row([], |row| {
        Ok(Progress {
            counted_beat: row.get(0)?,
            counted_ack: row.get(1)?,
            epoch: row.get(2)?,
            since: [row.get(3)?, row.get(4)?, row.get(5)?],
            beats_since: row.get(6)?,
        })
    })
}
