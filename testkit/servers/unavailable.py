"""The error for a server that is not available on this machine."""

from __future__ import annotations

from tidelock.core.errors import Unavailable


class ServerUnavailable(Unavailable):
    """A server could not be installed or did not start.

    `reason` is the failure, `how_to_install` the remedy; a skipped test shows both.
    """

    def __init__(self, name: str, *, reason: str, how_to_install: str) -> None:
        """Store the server, the reason, and the remedy."""
        super().__init__(f"{name} is not available: {reason}", hint=how_to_install)
        self.name = name
        self.reason = reason
        self.how_to_install = how_to_install
