"""Log files: blocks of changed rows and deletes on top of a base file."""
