"""The command line `tidelock`: a module for each command or group of related commands."""
