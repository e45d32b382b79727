-- $1 group
SELECT instance, nonce::text, note, evicted,
    (extract(epoch FROM expires_at - clock_timestamp()) * 1000000)::bigint
FROM tenure.session
WHERE group_name = $1 AND NOT ended AND expires_at > clock_timestamp() ORDER BY instance
