-- Keeps as many entries as the store says.
DELETE FROM audit WHERE seq <= (SELECT max(seq) FROM audit) - (SELECT audit_kept FROM store)
