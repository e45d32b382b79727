-- $1 history slots, $2 audit entries
SELECT tenure.store_retain($1, $2)::text
