SELECT * FROM tenure.connector_roll_up($1, $2)
