-- $1 the table of applied migrations, with its schema
SELECT to_regclass($1) IS NOT NULL
