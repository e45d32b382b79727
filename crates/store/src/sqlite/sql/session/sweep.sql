-- Members that ended more than a day ago; evictions are remembered. ?1 group, ?2 a day ago
DELETE FROM session WHERE group_name = ?1 AND expires_ns < ?2 AND NOT evicted
