SELECT number, name, breaking FROM migration ORDER BY number
