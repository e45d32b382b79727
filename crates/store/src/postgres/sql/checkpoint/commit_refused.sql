-- Reason why a commit was refused. $1 group, $2 instance, $3 nonce, $4 duty, $5 epoch
SELECT coalesce(h.held AND h.epoch = $5 AND h.instance = $2 AND h.nonce = $3::text::uuid
        AND NOT s.ended AND s.expires_at > clock_timestamp() AND coalesce(c.epoch, 0) <= $5,
        false) AS stands,
    coalesce(c.version, 0) AS stored, coalesce(greatest(h.epoch, c.epoch), 0) AS newest
FROM (SELECT) AS nothing
LEFT JOIN tenure.hold h ON h.group_name = $1 AND h.duty = $4
LEFT JOIN tenure.session s ON s.group_name = $1 AND s.instance = $2 AND s.nonce = $3::text::uuid
LEFT JOIN tenure.checkpoint c ON c.group_name = $1 AND c.duty = $4
