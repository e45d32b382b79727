SELECT tenure.inbox_jump($1, 'the store was adopted')
