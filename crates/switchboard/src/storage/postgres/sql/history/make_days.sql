SELECT tenure.connector_days_make($1)::text
