SELECT history_slots::bigint, audit_kept FROM tenure.store WHERE only_row
