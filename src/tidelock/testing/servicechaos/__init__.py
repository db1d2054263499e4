"""Writers and table services in processes of their own on one table, killed at random.

`python -m tidelock.testing.servicechaos` lets them loose for some minutes; see `fleet`.
"""
