SELECT id FROM dead_letter WHERE digest = ?1
