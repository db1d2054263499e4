"""Rollback: what an instant did is removed as if it had never been."""
