SELECT history_slots, audit_kept FROM store
