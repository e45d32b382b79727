-- Raises 25000 unless the transaction is read committed. The routines lock and then read: with one
-- snapshot for the whole transaction they would not see what was committed while they waited.
CREATE OR REPLACE FUNCTION tenure.check_isolation() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'the transaction is %, and has to be read committed',
            current_setting('transaction_isolation')
            USING ERRCODE = '25000', HINT = 'BEGIN ISOLATION LEVEL READ COMMITTED';
    END IF;
END $$;
