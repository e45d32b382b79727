-- ?1 group, ?2 now
SELECT h.duty, h.epoch, s.instance, s.expires_ns
FROM hold h LEFT JOIN session s ON h.held AND s.group_name = h.group_name
    AND s.instance = h.instance AND s.nonce = h.nonce AND s.expires_ns > ?2
WHERE h.group_name = ?1 ORDER BY h.duty
