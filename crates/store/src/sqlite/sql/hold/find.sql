-- The last grant of a duty and, while it is live, when it ends. ?1 group, ?2 duty, ?3 now
SELECT h.epoch, h.instance, h.nonce, h.held, s.expires_ns
FROM hold h LEFT JOIN session s ON h.held AND s.group_name = h.group_name
    AND s.instance = h.instance AND s.nonce = h.nonce AND s.expires_ns > ?3
WHERE h.group_name = ?1 AND h.duty = ?2
