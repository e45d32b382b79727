-- Which of these holds of a live session stand, as their positions from 1.
-- $1 group, $2 instance, $3 nonce, $4 duties, $5 epochs
SELECT w.item FROM unnest($4, $5) WITH ORDINALITY AS w(duty, epoch, item)
JOIN tenure.hold h ON h.group_name = $1 AND h.duty = w.duty AND h.epoch = w.epoch
WHERE h.instance = $2 AND h.nonce = $3::text::uuid AND h.held
