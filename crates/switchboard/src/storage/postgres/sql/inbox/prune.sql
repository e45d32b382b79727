SELECT tenure.inbox_prune($1)
