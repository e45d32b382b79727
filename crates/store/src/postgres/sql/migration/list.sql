SELECT number, name, breaking FROM tenure.migration
