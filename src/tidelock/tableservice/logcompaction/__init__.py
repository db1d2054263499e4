"""Log compaction: many log files of a file group merged into one."""
