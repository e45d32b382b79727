SELECT NOT current_setting('transaction_read_only')::boolean FROM tenure.inbox_position WHERE
    only_row
