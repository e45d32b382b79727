-- The valid ones among these holds of a live session, as positions from 1.
-- $1 group, $2 instance, $3 nonce, $4 duties, $5 epochs
SELECT w.item FROM unnest($4, $5) WITH ORDINALITY AS w(duty, epoch, item)
CROSS JOIN LATERAL (
    SELECT FROM tenure.hold x
    WHERE x.group_name = $1 AND x.duty = w.duty AND x.epoch = w.epoch
        AND x.instance = $2 AND x.nonce = $3::text::uuid AND x.held OFFSET 0
) AS h
