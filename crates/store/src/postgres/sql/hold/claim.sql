-- $1 group, $2 instance, $3 nonce, $4 duties, $5 floors, $6 reason
SELECT * FROM tenure.hold_claim($1, $2, $3::text::uuid, $4, $5, $6)
