"""What people run: the command line, the demo, the generated pages."""
