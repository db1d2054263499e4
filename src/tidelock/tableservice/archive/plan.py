"""Which instants leave the active timeline: the oldest, and none that somebody needs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidelock.base.errors import ConfigInvalid
from tidelock.table.naming import data_file, parse_token
from tidelock.table.timeline.instant import Action, Instant

_FOLLOWERS: Final = frozenset({Action.CLEAN, Action.ROLLBACK, Action.RESTORE, Action.INDEXING})
"""They say what was done to commits, so they go when the commits around them have gone."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many completed writes stay: when there are more than `most`, down to `least`."""

    least: int = 20
    most: int = 30

    def __post_init__(self) -> None:
        """Refuse bounds that would archive everything, or for ever. Raises: `ConfigInvalid`."""
        if not 0 < self.least < self.most:
            raise ConfigInvalid(
                f"hoodie.keep.min.commits = {self.least} must be above 0 and below"
                f" hoodie.keep.max.commits = {self.most}"
            )

    def beyond_cleaning(self, retained: int) -> Bounds:
        """Return bounds that keep every commit which cleaning retains, as Hudi raises them."""
        if self.least > retained:
            return self
        return Bounds(retained + 10, retained + 10 + max(10, self.most - self.least))


def to_archive(
    instants: Sequence[Instant], bounds: Bounds, *, needed: Collection[str] = ()
) -> tuple[Instant, ...]:
    """Return the instants to archive, oldest first, from those of the active timeline.

    Nothing goes past the first instant that is pending, savepointed, or in `needed` (a replacing
    commit whose files are not cleaned, or a write whose strays are not swept): what is archived is
    always the oldest part of the history, without holes (T10). The write that completed last stays,
    however long ago it began: the timeline tells readers how far the changes go. A replacing commit
    stays as long as a write that completed before it, which may name files of what it replaced.
    """
    writes = [i for i in instants if i.is_completed and i.action.writes_data]
    if len(writes) <= bounds.most:
        return ()
    last = max(writes, key=lambda each: each.completion)
    barrier = _barrier(instants, {*needed, last.requested})
    leaving = [i for i in writes[: len(writes) - bounds.least] if i.requested < barrier]
    leaving = leaving[: _hiding(leaving, writes)]
    if not leaving:
        return ()
    first_kept = next((i.requested for i in writes if i.requested > leaving[-1].requested), "~")
    followers = [
        i
        for i in instants
        if i.is_completed and i.action in _FOLLOWERS and i.requested < min(first_kept, barrier)
    ]
    return tuple(sorted([*leaving, *followers]))


def strays(
    found: Iterable[str], named: Mapping[str, frozenset[str]], *, alone: bool
) -> tuple[str, ...]:
    """Return the files, of those found, that no commit names.

    `named` has the files of each commit; files of other instants are all strays. Unless everything
    on the table is ours, that is `alone`, a file counts only if it is of another attempt than those
    that the commit names: how other writers name files is theirs to know.
    """
    gone: list[str] = []
    for key in sorted(found):
        instant, attempt = _origin(key)
        if key in named.get(instant, ()):
            continue
        if instant in named and not alone and attempt in {_origin(k)[1] for k in named[instant]}:
            continue
        gone.append(key)
    return tuple(gone)


def _origin(key: str) -> tuple[str, int | None]:
    """Return the instant and the attempt that a data file is of, as its name tells."""
    partition, _, name = key.rpartition("/")
    file = data_file(partition, name, 0)
    token = None if file is None else parse_token(file.write_token)
    return ("" if file is None else file.instant), (None if token is None else token.stage)


def outdated_content(name: str, *, archived: str, boundary: int) -> bool:
    """Tell whether the bytes stored under `name` are of what was published and archived past.

    Those of a commit bear its request time, those of a plan the position it was made at.
    """
    plan, _, rest = name.partition("-")
    if plan == "plan":
        position = rest.partition("-")[0]
        return position.isdecimal() and int(position) < boundary
    return plan.isdecimal() and plan < archived


def _hiding(leaving: Sequence[Instant], writes: Sequence[Instant]) -> int:
    """Return how many writes may leave, so that none is left whose files those that left replaced.

    Such a write was requested after the replacing commit, and completed before it.
    """
    first, above = len(leaving), "~"
    soonest = min((each.completion for each in writes[first:]), default="~")
    for at, each in reversed(list(enumerate(leaving))):
        above = min(above, each.completion)
        if each.action is Action.REPLACE_COMMIT and each.completion > soonest:
            first, soonest = at, min(soonest, above)
    return first


def _barrier(instants: Sequence[Instant], needed: Collection[str]) -> str:
    """Return the request time from which on everything stays."""
    holding = [i.requested for i in instants if not i.is_completed]
    holding += [i.requested for i in instants if i.action is Action.SAVEPOINT]
    holding += needed
    return min(holding, default="~")
