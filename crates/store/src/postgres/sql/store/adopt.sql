-- $1 incarnation, $2 floor
SELECT * FROM tenure.store_adopt($1, $2)
