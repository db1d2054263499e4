"""The protected resource: two counters, one with token checks and one without.

Every owner increments them by a read and a write. The fenced register rejects a token smaller than
the largest it has seen, for reads as well: a read must fence off writes that are still in flight.
The unfenced one is a canary: if it never loses an update, the simulator has too few faults.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RegisterAccess:
    """A request to both registers: read, or write the value read plus one."""

    token: int
    base: RegisterValues | None = None


@dataclass(frozen=True, slots=True)
class RegisterValues:
    """The values of the registers; None: rejected."""

    fenced: int | None
    unfenced: int


@dataclass(slots=True)
class Registers:
    """Both registers, and their lost updates."""

    fenced: int = 0
    unfenced: int = 0
    fence: int = 0
    acknowledged: int = 0
    refused: int = 0
    fenced_lost: int = 0
    unfenced_lost: int = 0

    def access(self, access: RegisterAccess) -> RegisterValues:
        """Perform a request and return the current values."""
        admitted = access.token >= self.fence
        self.fence = max(self.fence, access.token)
        if access.base is not None:
            self._write(access.base, admitted=admitted)
        elif not admitted:
            self.refused += 1
        return RegisterValues(self.fenced if admitted else None, self.unfenced)

    def _write(self, base: RegisterValues, *, admitted: bool) -> None:
        self.unfenced_lost += base.unfenced != self.unfenced
        self.unfenced = base.unfenced + 1
        if not admitted or base.fenced is None:
            self.refused += 1
            return
        self.fenced_lost += base.fenced != self.fenced
        self.fenced = base.fenced + 1
        self.acknowledged += 1
