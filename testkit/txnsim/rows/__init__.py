"""Simulation with rows: writers, services and readers of a real table, with production code.

The tables are tiny and everything is real: the planner, the index, file groups with their base
and log files, services and reads. Only the store, the clocks and the threads are simulated.
"""
