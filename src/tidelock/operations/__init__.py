"""What users do with a table."""
