DELETE FROM connector_stats_hourly WHERE rowid IN (SELECT rowid
    FROM connector_stats_hourly WHERE hour < ?1 ORDER BY hour LIMIT ?2)
