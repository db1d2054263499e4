"""Archive: old instants leave the active timeline for the history."""
