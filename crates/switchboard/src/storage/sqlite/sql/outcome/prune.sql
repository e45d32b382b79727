DELETE FROM inbox_outcome WHERE rowid IN (SELECT rowid
    FROM inbox_outcome WHERE reported_at < ?1 AND (arrival IS NULL
        OR arrival <= (SELECT counted_ack FROM connector_stats_progress))
    ORDER BY reported_at LIMIT ?2)
