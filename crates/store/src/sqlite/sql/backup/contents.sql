-- Numbers of groups, duties and checkpoints, the newest epoch, and the lowest version.
SELECT
    (SELECT count(*) FROM (
        SELECT group_name FROM hold UNION SELECT group_name FROM checkpoint
        UNION SELECT group_name FROM group_document)),
    (SELECT count(*) FROM (
        SELECT group_name, duty FROM hold UNION SELECT group_name, duty FROM checkpoint)),
    (SELECT count(*) FROM checkpoint),
    max(
        coalesce((SELECT max(epoch) FROM hold), 0),
        coalesce((SELECT max(epoch) FROM checkpoint), 0)),
    coalesce((SELECT min(version) FROM checkpoint), 1)
