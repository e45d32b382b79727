SELECT count(*) FROM tenure.dead_letter WHERE state = 'pending'
