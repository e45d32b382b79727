UPDATE connector_registry SET
    counter_messages_ingested = max(counter_messages_ingested + ?3, 0),
    counter_messages_failed = max(counter_messages_failed + ?4, 0),
    counter_source_api_calls = max(counter_source_api_calls + ?5, 0),
    counter_dedupe_accepted = max(counter_dedupe_accepted + ?6, 0)
WHERE connector_type = ?1 AND endpoint_identity = ?2
