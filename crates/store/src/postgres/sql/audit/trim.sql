-- Deletes the entries beyond the store's retention.
DELETE FROM tenure.audit WHERE seq <= (SELECT max(seq) FROM tenure.audit)
    - (SELECT audit_kept FROM tenure.store WHERE only_row)
