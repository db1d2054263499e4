"""The one error of the server kit: a server that cannot be had on this machine."""

from __future__ import annotations

from tidelock.base.errors import Unavailable


class ServerUnavailable(Unavailable):
    """A server could not be installed or did not come up.

    `reason` says what failed, `how_to_install` what makes it work; a test that skips shows both.
    """

    def __init__(self, name: str, *, reason: str, how_to_install: str) -> None:
        """Name the server, why it is missing, and the remedy."""
        super().__init__(f"{name} is not available: {reason}", hint=how_to_install)
        self.name = name
        self.reason = reason
        self.how_to_install = how_to_install
