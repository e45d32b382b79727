-- Takes every entry out of its slot, so that none meets another on the way to its new one.
UPDATE history SET slot = -1 - slot
