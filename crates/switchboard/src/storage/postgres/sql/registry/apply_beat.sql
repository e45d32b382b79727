SELECT * FROM tenure.connector_beat_apply($1, $2, $3, $4, $5, $6, $7, $8)
