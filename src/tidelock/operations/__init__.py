"""Operations on a table: create, read and write."""
