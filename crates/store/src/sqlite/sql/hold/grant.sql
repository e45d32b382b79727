-- ?1 group, ?2 duty, ?3 epoch, ?4 instance, ?5 nonce
INSERT INTO hold (group_name, duty, epoch, instance, nonce, held) VALUES (?1, ?2, ?3, ?4, ?5, 1)
ON CONFLICT (group_name, duty) DO UPDATE SET
    epoch = excluded.epoch, instance = excluded.instance, nonce = excluded.nonce, held = 1
