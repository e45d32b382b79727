-- ?1 slots
UPDATE history SET slot = version % ?1
