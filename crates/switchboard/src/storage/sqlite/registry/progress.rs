//! How far counting is.

use rusqlite::Connection;

/// The one row of progress.
pub(super) struct Progress {
    /// Everything that was received before this was counted.
    pub(super) counted: i64,
    /// Nothing is received before this any more.
    pub(super) ceiling: i64,
    /// Under which hold it was counted last.
    pub(super) epoch: i64,
    /// Where the periods began when they were counted last, in the order of `Period::ALL`.
    pub(super) since: [i64; 3],
}

pub(super) fn progress(db: &Connection) -> rusqlite::Result<Progress> {
    let sql = "SELECT counted, ceiling, epoch, since_24h, since_7d, since_30d
        FROM connector_stats_progress";
    db.prepare_cached(sql)?.query_row([], |row| {
        Ok(Progress {
            counted: row.get(0)?,
            ceiling: row.get(1)?,
            epoch: row.get(2)?,
            since: [row.get(3)?, row.get(4)?, row.get(5)?],
        })
    })
}

/// When something counts as received: nothing is before what was counted, whatever the clock says.
pub(super) fn arrival(db: &Connection, now: i64) -> rusqlite::Result<i64> {
    let progress = progress(db)?;
    Ok(now.max(progress.ceiling).max(progress.counted))
}
