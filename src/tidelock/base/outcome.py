"""What became of a conditional write: landed, not landed, or not known.

Only `NotLanded` allows clean-up. `Unknown` must be read back or left alone.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Landed:
    """The store holds our bytes under `version`."""

    version: str


@dataclass(frozen=True, slots=True)
class NotLanded:
    """The store does not hold our bytes and, for this request, never will."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """The bytes may be there, or may still arrive."""

    cause: str


Outcome = Landed | NotLanded | Unknown
