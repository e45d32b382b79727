INSERT INTO token_usage (token_id, day, requests, accepted, duplicates, refused)
VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (token_id, day) DO UPDATE SET
    requests = requests + excluded.requests, accepted = accepted + excluded.accepted,
    duplicates = duplicates + excluded.duplicates, refused = refused + excluded.refused
