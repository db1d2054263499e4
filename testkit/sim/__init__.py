"""Simulator of the lock: production code in one thread, with virtual time and one seed.

    python -m testkit.sim --seed 7           replay seed 7 and print its trace
    python -m testkit.sim --schedules 50000  run many seeds and check every one

`schedule` runs one seed, `campaign` runs many; `checkers` has the properties that must hold.
"""
