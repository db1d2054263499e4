"""The lock of RFC-91: a pure machine, its drivers, its record and its audit."""
