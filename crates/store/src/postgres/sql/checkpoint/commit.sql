-- A batch of commits.
-- $1 group, $2 instance, $3 nonce, $4 duties, $5 epochs, $6 expected versions, $7 documents
SELECT * FROM tenure.checkpoint_commit($1, $2, $3::text::uuid, $4, $5, $6, $7)
