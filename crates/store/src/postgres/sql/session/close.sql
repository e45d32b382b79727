-- $1 group, $2 instance, $3 nonce, $4 reason
SELECT tenure.session_close($1, $2, $3::text::uuid, $4)
