"""The command line: `tidelock lock …` and `tidelock demo`, a module for each command."""
