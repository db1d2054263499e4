"""Table services in the simulation: plans, two executors, a clean, an archive, beside writers.

Scheduling, claims, commits, roll-backs, clean and archive are the code that ships. Only what is in
a data file is the simulation's own: a base file maps keys to the names of the writes that updated
them, in order; a log file maps keys to one more.
"""
