"""The outcome of a conditional write: landed, not landed, or unknown.

Only `NotLanded` permits cleanup. `Unknown` must be read back or left alone.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Landed:
    """The store has our bytes under `version`."""

    version: str


@dataclass(frozen=True, slots=True)
class NotLanded:
    """The store does not have our bytes and, for this request, never will."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """The store may have our bytes, or may still receive them."""

    cause: str


Outcome = Landed | NotLanded | Unknown
