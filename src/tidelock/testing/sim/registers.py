"""What the lock protects: two counters, one that checks tokens and one that does not.

Every owner adds one by reading and writing. The fenced register refuses a token smaller than the
largest it has seen, on reading too: a reader must fence off writes that are still on their way.
The unfenced one is the canary: if it never loses an update, the simulator is too kind.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Touch:
    """A request to both registers: read, or write what was read plus one."""

    token: int
    base: Bases | None = None


@dataclass(frozen=True, slots=True)
class Bases:
    """What the registers held when they were read; None: refused."""

    fenced: int | None
    unfenced: int


@dataclass(slots=True)
class Registers:
    """Both registers, and what was lost in them."""

    fenced: int = 0
    unfenced: int = 0
    fence: int = 0
    acknowledged: int = 0
    refused: int = 0
    fenced_lost: int = 0
    unfenced_lost: int = 0

    def touch(self, touch: Touch) -> Bases:
        """Carry out a request and return what is there now."""
        admitted = touch.token >= self.fence
        self.fence = max(self.fence, touch.token)
        if touch.base is not None:
            self._write(touch.base, admitted=admitted)
        elif not admitted:
            self.refused += 1
        return Bases(self.fenced if admitted else None, self.unfenced)

    def _write(self, base: Bases, *, admitted: bool) -> None:
        self.unfenced_lost += base.unfenced != self.unfenced
        self.unfenced = base.unfenced + 1
        if not admitted or base.fenced is None:
            self.refused += 1
            return
        self.fenced_lost += base.fenced != self.fenced
        self.fenced = base.fenced + 1
        self.acknowledged += 1
