"""Simulation with table services: plans, two executors, a clean, an archive and writers.

Scheduling, claims, commits, rollbacks, clean and archive are production code. Only the content of
data files is simulated: a base file maps keys to the names of the writes that updated them, in
order; a log file maps keys to one more.
"""
