"""File groups: reading, merging and writing their base files and log files with Arrow."""
