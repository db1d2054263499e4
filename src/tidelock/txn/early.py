"""Early detection: a write that cannot succeed any more is told so while it runs (C74-C77).

Two things are looked at: commits since it began, with the very rules that will judge it, and
markers of writers that began before it and are alive. The second is a guess, so it is asked for by
Hudi's switch; the younger of two gives way, as in Hudi.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tidelock.base.clock import Now
from tidelock.store.contract import ObjectMeta, StoredObject
from tidelock.table.filegroup.view import GroupId
from tidelock.table.markers import TEMP_FOLDER, Marker, parse_marker
from tidelock.table.naming import data_file
from tidelock.txn.committing import Judge
from tidelock.txn.effects import Get, List, ReadClock, Steps
from tidelock.txn.footprint import Deed
from tidelock.txn.heartbeat import heartbeat_key, pulse_of
from tidelock.txn.rules import Candidate
from tidelock.txn.verdict import Party, Report
from tidelock.txn.view import View

_ADVICE: Final = "stop now and start again: what it writes cannot be committed"


@dataclass(frozen=True, slots=True)
class Rival:
    """Another writer that is at work, and the file groups of which it has announced files."""

    instant: str
    owner: str
    groups: frozenset[GroupId]


def group_of(marker: Marker) -> GroupId | None:
    """Return the file group of the data file that a marker announces, base or log."""
    file = data_file(marker.partition, marker.name, 0)
    return None if file is None else (file.partition, file.file_id)


def groups_of(markers: Iterable[Marker]) -> frozenset[GroupId]:
    """Return the file groups that markers announce files of."""
    return frozenset(group for marker in markers if (group := group_of(marker)) is not None)


def committed_against(view: View, candidate: Candidate, *, base: int) -> Report | None:
    """Return what was committed since that a write of this footprint cannot follow (pure)."""
    if candidate.instant in view.fold.void:
        mine = Party(candidate.instant, candidate.footprint.deed, candidate.owner)
        return Report(mine, (), cause="it was rolled back by somebody else", advice=_ADVICE)
    overtaken = Judge(candidate, base).verdict(view)
    return None if overtaken is None else overtaken.verdict.report


def met_by_markers(
    candidate: Candidate, groups: frozenset[GroupId], rivals: Iterable[Rival]
) -> Report | None:
    """Return which older live writers have announced files of the same file groups (pure)."""
    met = [rival for rival in rivals if rival.instant < candidate.instant and rival.groups & groups]
    if not met:
        return None
    shared = frozenset().union(*(rival.groups & groups for rival in met))
    return Report(
        Party(candidate.instant, candidate.footprint.deed, candidate.owner),
        tuple(Party(rival.instant, Deed.UPSERT, rival.owner) for rival in met),
        groups=shared,
        cause="an older writer is writing these file groups",
        advice=_ADVICE,
    )


def rivals(own: str, *, leave_out: frozenset[str], otherwise_ms: int) -> Steps[tuple[Rival, ...]]:
    """Read the markers of every other live writer; `leave_out` are pending plans."""
    listed: tuple[ObjectMeta, ...] = yield List(f"{TEMP_FOLDER}/")
    by_instant: dict[str, list[Marker]] = {}
    for meta in listed:
        instant, _, path = meta.key.removeprefix(f"{TEMP_FOLDER}/").partition("/")
        marker = parse_marker(path)
        if marker is not None and instant != own and instant not in leave_out:
            by_instant.setdefault(instant, []).append(marker)
    return (yield from _alive(by_instant, otherwise_ms))


def _alive(by_instant: Mapping[str, list[Marker]], otherwise_ms: int) -> Steps[tuple[Rival, ...]]:
    found: list[Rival] = []
    for instant, markers in by_instant.items():
        held: StoredObject | None = yield Get(heartbeat_key(instant))
        now: Now = yield ReadClock()
        if held is None:
            continue
        pulse = pulse_of(instant, held)
        if pulse.is_alive(now.wall_epoch_ms, otherwise_ms=otherwise_ms):
            owner = pulse.says.owner if pulse.says is not None else ""
            found.append(Rival(instant, owner, groups_of(markers)))
    return tuple(found)
