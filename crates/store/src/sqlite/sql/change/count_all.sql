-- Notifies the watchers of every group.
UPDATE change SET count = count + 1
