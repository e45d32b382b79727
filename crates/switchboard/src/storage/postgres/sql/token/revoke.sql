SELECT * FROM tenure.token_revoke($1, $2, $3)
