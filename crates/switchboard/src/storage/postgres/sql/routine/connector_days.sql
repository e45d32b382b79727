
-- Creates partitions of the history for today and the next three days, with the owner's rights. A
-- day that has rows in the default partition stays there. ATTACH does not block other days.
CREATE OR REPLACE FUNCTION tenure.connector_days_make(p_at timestamptz) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET lock_timeout = '500ms' AS $$
DECLARE
    v_today date := (coalesce(p_at, clock_timestamp()) AT TIME ZONE 'UTC')::date;
    v_name text;
BEGIN
    FOR v_n IN 0 .. 3 LOOP
        v_name := 'connector_heartbeat_log_p' || to_char(v_today + v_n, 'YYYYMMDD');
        CONTINUE WHEN to_regclass('tenure.' || v_name) IS NOT NULL;
        BEGIN
            -- Serialised from before the first read of the default partition: its readers would
            -- keep each other from attaching.
            PERFORM pg_advisory_xact_lock(hashtextextended('tenure.connector_heartbeat_log', 0));
            CONTINUE WHEN EXISTS (
                SELECT FROM tenure.connector_heartbeat_log_default l
                WHERE l.received_at >= (v_today + v_n)::timestamp AT TIME ZONE 'UTC'
                    AND l.received_at < (v_today + v_n + 1)::timestamp AT TIME ZONE 'UTC');
            EXECUTE format('CREATE TABLE tenure.%I (LIKE tenure.connector_heartbeat_log)', v_name);
            EXECUTE format('ALTER TABLE tenure.connector_heartbeat_log ATTACH PARTITION tenure.%I '
                'FOR VALUES FROM (%L) TO (%L)', v_name, to_char(v_today + v_n, 'YYYY-MM-DD')
                || ' 00:00:00+00', to_char(v_today + v_n + 1, 'YYYY-MM-DD') || ' 00:00:00+00');
        EXCEPTION
            WHEN duplicate_table OR check_violation OR lock_not_available OR deadlock_detected THEN
                -- Another process created it, a heartbeat of that day arrived meanwhile, or a
                -- reader holds a lock: rows of that day go to the default partition.
                CONTINUE;
        END;
    END LOOP;
END $$;
REVOKE EXECUTE ON FUNCTION tenure.connector_days_make(timestamptz) FROM PUBLIC;

-- Drops whole days of the history that are past their retention and have been counted. Returns
-- their number.
CREATE OR REPLACE FUNCTION tenure.connector_days_drop(p_keep bigint, p_at timestamptz)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET lock_timeout = '500ms' AS $$
DECLARE
    v_end timestamptz;
    v_counted bigint;
    v_name text;
    v_is_counted boolean;
    v_gone bigint := 0;
BEGIN
    SELECT coalesce(p_at, c.reached) - p_keep * interval '1 microsecond', p.counted_id
    INTO STRICT v_end, v_counted
    FROM tenure.switchboard_clock c, tenure.connector_stats_progress p
    WHERE c.only_row AND p.only_row;
    -- Before any heartbeat is deleted, including those in the default partition.
    BEGIN
        UPDATE tenure.connector_stats_progress p SET beats_since = date_trunc('day', v_end, 'UTC')
        WHERE p.only_row AND p.beats_since < date_trunc('day', v_end, 'UTC');
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
        -- Another process is counting or dropping days.
        RETURN 0;
    END;
    FOR v_name IN
        SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'tenure.connector_heartbeat_log'::regclass
            AND c.relname ~ '^connector_heartbeat_log_p[0-9]{8}$'
            AND (to_date(right(c.relname, 8), 'YYYYMMDD') + 1)::timestamp AT TIME ZONE 'UTC'
                <= v_end
        ORDER BY c.relname LIMIT 10
    LOOP
        -- The short lock timeout keeps readers from waiting behind this; a later call retries.
        BEGIN
            EXECUTE format('SELECT NOT EXISTS (SELECT FROM tenure.%I WHERE id > $1)', v_name)
            INTO v_is_counted USING v_counted;
            CONTINUE WHEN NOT v_is_counted;
            EXECUTE format('DROP TABLE tenure.%I', v_name);
            v_gone := v_gone + 1;
        EXCEPTION WHEN lock_not_available OR undefined_table OR deadlock_detected THEN
            EXIT;
        END;
    END LOOP;
    RETURN v_gone;
END $$;
REVOKE EXECUTE ON FUNCTION tenure.connector_days_drop(bigint, timestamptz) FROM PUBLIC;
