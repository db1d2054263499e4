"""What the conflict rules say to a writer that wants to commit. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from tidelock.table.filegroup.view import GroupId
from tidelock.txn.footprint import NO_GROUPS, Deed
from tidelock.txn.mark import Applied


@dataclass(frozen=True, slots=True)
class Party:
    """A commit, as a conflict report names it."""

    instant: str
    deed: Deed
    owner: str = ""
    position: int = 0
    completion: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """Who met whom, where, and what to do about it."""

    mine: Party
    others: tuple[Party, ...]
    groups: frozenset[GroupId] = NO_GROUPS
    cause: str = ""
    advice: str = ""

    def __str__(self) -> str:
        """Return the report as a few sentences."""
        met = ", ".join(
            f"{other.deed} {other.instant}" + (f" of {other.owner}" if other.owner else "")
            for other in self.others
        )
        shown = sorted("/".join(filter(None, group)) for group in self.groups)
        where = f" in {', '.join(shown[:5])}" if shown else ""
        more = f" and {len(shown) - 5} more file groups" if len(shown) > 5 else ""
        text = f"{self.mine.deed} {self.mine.instant} met {met or 'another commit'}{where}{more}"
        return f"{text}: {self.cause}" if self.cause else text


@dataclass(frozen=True, slots=True)
class Fine:
    """Nothing that was committed since stands against it."""


@dataclass(frozen=True, slots=True)
class Rebase:
    """Write these file groups again on top of what is there now, under a later instant.

    With `rerun` the rows themselves depend on what was read, so the statement runs again.
    """

    report: Report
    groups: frozenset[GroupId] = NO_GROUPS
    rerun: bool = False


@dataclass(frozen=True, slots=True)
class ReplanReplaced:
    """The data files stand; only the list of replaced file groups is to be made anew."""

    report: Report
    add: frozenset[GroupId] = NO_GROUPS
    drop: frozenset[GroupId] = NO_GROUPS


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """New keys of the commit at `position` in one partition, to be compared with one's own.

    `keys` is None when the ledger does not name them; then they are in `files`. With `groups`, all
    rows of one's own are compared, or looked for in these file groups of the other where it named
    no keys, not only new ones; with `log_order`, its log files in them, requested at `instant`, are
    compared with one's own. Readers apply log files by request time, which matters where neither
    ordering value is the greater; a row after a delete may be older than what that deleted.
    """

    position: int
    partition: str
    keys: frozenset[str] | None = None
    files: tuple[str, ...] = ()
    groups: frozenset[GroupId] = NO_GROUPS
    instant: str = ""
    log_order: bool = False


@dataclass(frozen=True, slots=True)
class CheckKeys:
    """Both inserted into one partition, and the ledger cannot tell whether the same keys.

    Compare; if none is the same, commit again with these positions as `cleared`.
    """

    report: Report
    checks: tuple[KeyCheck, ...] = ()


@dataclass(frozen=True, slots=True)
class Yield:
    """A table service met a writer and gives way: its work is undone and planned anew."""

    report: Report
    groups: frozenset[GroupId] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class Refuse:
    """There is no safe way to commit this."""

    report: Report


@dataclass(frozen=True, slots=True)
class Repeated:
    """The batch that this write is was applied before: there is nothing left to do."""

    report: Report
    applied: Applied


Verdict: TypeAlias = Fine | Rebase | ReplanReplaced | CheckKeys | Yield | Refuse
"""What the conflict rules say."""
