"""SQL procedures: `CALL show_commits(table => ...)`, with the names and arguments of Hudi."""
