"""Procedures: `CALL show_commits(table => ...)`, with the names and arguments that Hudi has."""
