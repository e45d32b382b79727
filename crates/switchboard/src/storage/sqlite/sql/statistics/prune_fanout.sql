DELETE FROM connector_fanout_daily WHERE rowid IN (SELECT rowid
    FROM connector_fanout_daily WHERE day < date(?1 / 1000000, 'unixepoch') ORDER BY day LIMIT ?2)
