"""Long stress test: processes with all operations and services on one table, and a replay."""
