-- Deletes sessions that ended more than a day ago, except evictions. ?1 group, ?2 a day ago
DELETE FROM session WHERE group_name = ?1 AND expires_ns < ?2 AND NOT evicted
