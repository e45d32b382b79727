-- ?1 history slots, ?2 audit entries
UPDATE store SET history_slots = ?1, audit_kept = ?2
