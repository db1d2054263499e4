"""Writers and table services as separate processes on one table, killed at random.

`python -m testkit.servicechaos` runs them for some minutes; see `fleet`.
"""
