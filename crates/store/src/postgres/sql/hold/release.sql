-- $1 group, $2 instance, $3 nonce, $4 duties, $5 epochs, $6 reason
SELECT * FROM tenure.hold_release($1, $2, $3::text::uuid, $4, $5, $6)
