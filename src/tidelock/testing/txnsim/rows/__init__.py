"""Rows in the simulation: writers, services and readers of a real table, by the code that ships.

Tables are tiny, and everything is real: the planner, the index, the kernel, file groups, base and
log files, services and reads. Only the store, the clocks and the threads are the simulation's.
"""
