INSERT INTO tenure.migration (number, name, breaking)
VALUES ($1, $2, $3) ON CONFLICT (number) DO NOTHING;
