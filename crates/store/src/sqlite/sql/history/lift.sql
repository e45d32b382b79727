-- Moves every entry to a temporary slot, so that none collides when it gets its new one.
UPDATE history SET slot = -1 - slot
