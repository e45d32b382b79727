SELECT turn, reached FROM switchboard_clock
