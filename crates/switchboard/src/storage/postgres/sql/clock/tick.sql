SELECT * FROM tenure.switchboard_tick($1, $2, $3, $4)
