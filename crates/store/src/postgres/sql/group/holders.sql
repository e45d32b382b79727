-- $1 group
SELECT h.duty, h.epoch, s.instance,
    (extract(epoch FROM s.expires_at - clock_timestamp()) * 1000000)::bigint
FROM tenure.hold h
LEFT JOIN tenure.session s ON s.group_name = h.group_name AND s.instance = h.instance
    AND s.nonce = h.nonce AND h.held AND NOT s.ended AND s.expires_at > clock_timestamp()
WHERE h.group_name = $1 AND h.epoch > 0 ORDER BY h.duty
