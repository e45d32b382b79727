
-- Raises 25000 unless the transaction is read committed: after a wait for a lock, it must see what
-- was committed meanwhile.
CREATE OR REPLACE FUNCTION tenure.ingest_isolation() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'the transaction is %, and has to be read committed',
            current_setting('transaction_isolation')
            USING ERRCODE = '25000', HINT = 'BEGIN ISOLATION LEVEL READ COMMITTED';
    END IF;
END $$;
