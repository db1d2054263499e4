"""SQL on Tidelock tables: statements parsed by sqlglot, executed through Spark and `Table`."""
