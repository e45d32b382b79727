SELECT * FROM tenure.connector_recount($1, $2, $3, $4, $5, $6)
