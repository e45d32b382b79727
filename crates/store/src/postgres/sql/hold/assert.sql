-- $1 group/duty, $2 epoch, $3 instance
SELECT tenure.assert_hold($1, $2, $3)
