
-- Returns the time to store with arriving data: never before the clock of retention, so that
-- nothing looks old when the server's clock steps back.
CREATE OR REPLACE FUNCTION tenure.switchboard_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
    SELECT greatest(clock_timestamp(), c.reached) FROM tenure.switchboard_clock c WHERE c.only_row
$$;

-- Moves the clock of retention towards the server's: by at most twice the microseconds p_elapsed
-- that the caller has measured since turn p_turn, and only if nobody has moved it since. p_wall is
-- the server's clock at that turn. If both readings agree, stored times ahead of them come from a
-- clock that was wrong, and are set to now. Not so while the server's clock is behind the clock of
-- retention: then the readings are wrong.
CREATE OR REPLACE FUNCTION tenure.switchboard_tick(
    p_at timestamptz, p_turn bigint, p_elapsed bigint, p_wall timestamptz
) RETURNS TABLE (turn bigint, wall timestamptz, reached timestamptz)
LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
#variable_conflict use_column
DECLARE
    v_wall timestamptz := coalesce(p_at, clock_timestamp());
    v_elapsed interval := p_elapsed * interval '1 microsecond';
    v_ahead timestamptz := v_wall + interval '1 minute';
BEGIN
    UPDATE tenure.switchboard_clock
    SET reached = greatest(reached, least(v_wall, reached + 2 * v_elapsed)), turn = turn + 1
    WHERE only_row AND turn = p_turn;
    IF v_wall BETWEEN p_wall + v_elapsed - interval '5 seconds'
        AND p_wall + v_elapsed + interval '5 seconds'
        AND v_wall >= (SELECT c.reached FROM tenure.switchboard_clock c WHERE c.only_row)
    THEN
        UPDATE tenure.connector_registry SET
            last_heartbeat_at = CASE WHEN last_heartbeat_at > v_wall THEN v_wall
                ELSE last_heartbeat_at END,
            first_seen_at = least(first_seen_at, v_wall)
        WHERE last_heartbeat_at > v_ahead OR first_seen_at > v_ahead;
        UPDATE tenure.connector_instances SET last_heartbeat_at = v_wall,
            first_seen_at = least(first_seen_at, v_wall),
            last_sent_at = least(last_sent_at, v_wall), started_at = least(started_at, v_wall),
            stopped_at = CASE WHEN stopped_at > v_wall THEN v_wall ELSE stopped_at END
        WHERE last_heartbeat_at > v_ahead;
    END IF;
    RETURN QUERY SELECT c.turn, v_wall, c.reached FROM tenure.switchboard_clock c WHERE c.only_row;
END $$;
