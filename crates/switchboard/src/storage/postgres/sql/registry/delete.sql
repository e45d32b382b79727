SELECT * FROM tenure.connector_delete($1, $2, $3, $4, $5, $6)
