-- Locks nothing while the lineage is unchanged.
SELECT tenure.inbox_recognise()::text FROM tenure.inbox_position
WHERE only_row AND lineage IS DISTINCT FROM coalesce(tenure.inbox_lineage(), lineage)
