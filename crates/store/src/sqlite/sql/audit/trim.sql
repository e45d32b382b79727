-- Deletes the entries beyond the store's retention.
DELETE FROM audit WHERE seq <= (SELECT max(seq) FROM audit) - (SELECT audit_kept FROM store)
