"""Measurements of the lock, side by side with what it stands on and with what it competes with."""
