UPDATE switchboard_clock SET turn = turn + 1, reached = max(reached, min(?1, reached + ?2))
WHERE turn = ?3
