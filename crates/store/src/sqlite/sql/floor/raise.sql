-- ?1 group, ?2 epoch
INSERT INTO group_floor (group_name, epoch) VALUES (?1, ?2)
ON CONFLICT (group_name) DO UPDATE SET epoch = max(epoch, excluded.epoch)
