SELECT count(*) FROM dead_letter WHERE state = 'pending'
