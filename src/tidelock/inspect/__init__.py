"""Checks of a table and its lock: `table validate`, `doctor` and `lock doctor`."""
