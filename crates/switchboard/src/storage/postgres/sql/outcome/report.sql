SELECT * FROM tenure.outcome_report($1, $2, $3, $4, $5, $6, $7)
