"""Table services: compaction, clustering, clean, archive, each a pure plan and its execution."""
