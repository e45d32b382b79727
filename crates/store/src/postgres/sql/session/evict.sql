-- $1 group, $2 instance, $3 at once, $4 reason
SELECT tenure.session_evict($1, $2, $3, $4)
