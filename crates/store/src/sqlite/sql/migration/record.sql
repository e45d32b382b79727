INSERT INTO migration (number, name, breaking) VALUES (?1, ?2, ?3)
