-- $1 how many entries to keep
DELETE FROM tenure.audit WHERE seq <= (SELECT max(seq) FROM tenure.audit) - $1
