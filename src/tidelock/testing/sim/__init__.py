"""The lock world, simulated: the production code, one thread, virtual time, one seed.

    python -m tidelock.testing.sim --seed 7           print what happened under seed 7
    python -m tidelock.testing.sim --schedules 50000  run many seeds and check every one

`schedule` runs one seed, `campaign` runs many; `checkers` says what must hold.
"""
