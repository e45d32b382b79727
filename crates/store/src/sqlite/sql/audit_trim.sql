-- ?1: how many entries to keep
DELETE FROM audit WHERE seq <= (SELECT max(seq) FROM audit) - ?1
