"""A long stress: processes with every operation and every service on one table, and a replay."""
