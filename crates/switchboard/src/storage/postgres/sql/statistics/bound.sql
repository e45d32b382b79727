SELECT tenure.connector_bound($1)::text
