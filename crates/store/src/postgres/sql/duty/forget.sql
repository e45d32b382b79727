-- $1 groups, $2 duties, $3 reason
SELECT * FROM tenure.duty_forget($1, $2, $3)
