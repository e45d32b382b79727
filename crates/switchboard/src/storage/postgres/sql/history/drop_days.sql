SELECT tenure.connector_days_drop($1, $2)
