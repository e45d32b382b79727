-- Nothing is locked while all is as it was.
SELECT tenure.inbox_recognise()::text FROM tenure.inbox_position
WHERE only_row AND lineage IS DISTINCT FROM coalesce(tenure.inbox_lineage(), lineage)
