SELECT count(*) FROM inbox_outcome WHERE arrival > ?1 AND arrival <= ?2
