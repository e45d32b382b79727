-- $1 group, $2 instance, $3 nonce, $4 TTL in ms, $5 note, $6 first mark
SELECT tenure.session_open($1, $2, $3::text::uuid, $4, $5, $6)
