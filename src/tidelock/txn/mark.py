"""Marks: how far an application has come, written with its data or not at all (C78-C83). Pure.

A pipeline numbers its batches and puts the number, and what it needs to go on from there, into the
commit of the batch. The ledger takes no number twice, so a batch lands at most once however often
it is tried, even by somebody who was believed dead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidelock.base.errors import InvalidInput
from tidelock.txn.fields import Fields

VERSION_MAX: Final = 2**63 - 1
DATA_CHARACTERS_MAX: Final = 65_536
"""Text that one mark carries. Every reader of the ledger reads it, every checkpoint has it."""

APPLICATIONS_MAX: Final = 4_096
"""Applications whose last mark is kept. The one that has been silent the longest is forgotten."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The batch `version` of `application`, and where the next one begins.

    `data` is a text, or texts by name; those by name stand in the commit's metadata, too.
    """

    application: str
    version: int
    data: str | Mapping[str, str] = ""

    def __post_init__(self) -> None:
        """Check it. Raises: `InvalidInput`."""
        if not self.application:
            raise InvalidInput("a mark has no application", hint="name the pipeline that writes")
        if not 0 <= self.version <= VERSION_MAX:
            raise InvalidInput(
                f"version = {self.version!r} of {self.application!r} is not a whole number from 0",
                hint="count the batches of the application",
            )
        texts = [self.data] if isinstance(self.data, str) else [*self.data, *self.data.values()]
        size = len(self.application) + sum(map(len, texts))
        if size > DATA_CHARACTERS_MAX:
            raise InvalidInput(
                f"the mark of {self.application!r} has {size} characters, more than"
                f" {DATA_CHARACTERS_MAX}",
                hint="keep what is large in a file of your own, and its name in the mark",
            )

    @property
    def metadata(self) -> Mapping[str, str]:
        """What of it stands in the commit's metadata."""
        return {} if isinstance(self.data, str) else self.data


@dataclass(frozen=True, slots=True)
class Applied:
    """A mark that was committed, as `instant`, at `completion`."""

    mark: Mark
    instant: str
    completion: str

    def covers(self, mark: Mark) -> bool:
        """Tell whether the batch of `mark` was applied already, or skipped for good."""
        return mark.version <= self.mark.version


def marked(marks: Mapping[str, Applied], applied: Applied) -> Mapping[str, Applied]:
    """Return the last marks with one more, that of its application being the last to be dropped."""
    name = applied.mark.application
    kept = {other: held for other, held in marks.items() if other != name}
    if len(kept) >= APPLICATIONS_MAX:
        del kept[next(iter(kept))]
    kept[name] = applied
    return kept


def taken_back(
    marks: Mapping[str, Applied], left: Mapping[str, Applied | None]
) -> Mapping[str, Applied]:
    """Return the last marks when those of `left` are what they were before; None is none at all."""
    kept = {name: held for name, held in marks.items() if name not in left}
    return {**kept, **{name: held for name, held in left.items() if held is not None}}


def mark_fields(mark: Mark) -> dict[str, Any]:
    """Return a mark as an entry has it."""
    fields: dict[str, Any] = {"application": mark.application, "version": mark.version}
    if mark.data != "":
        fields["data"] = mark.data if isinstance(mark.data, str) else dict(mark.data)
    return fields


def mark_of(fields: Fields) -> Mark:
    """Return the mark in an entry. Raises: `DataCorrupt`."""
    data: str | Mapping[str, str] = ""
    if isinstance(fields.raw("data"), dict):
        held = fields.below("data")
        data = {name: held.text(name) for name in held.values}
    elif fields.raw("data") is not None:
        data = fields.text("data")
    try:
        return Mark(fields.text("application"), fields.whole("version"), data)
    except InvalidInput as error:
        raise fields.broken(error.message) from error


def left_fields(left: Mapping[str, Applied | None]) -> list[dict[str, Any]]:
    """Return the last marks of applications at some moment as an entry has them."""
    return [
        {"application": name} if held is None else applied_fields(held)
        for name, held in left.items()
    ]


def left_of(each: Iterable[Fields]) -> dict[str, Applied | None]:
    """Return the last marks that an entry names, None for none. Raises: `DataCorrupt`."""
    return {
        fields.text("application"): applied_of(fields) if "version" in fields.values else None
        for fields in each
    }


def applied_fields(applied: Applied) -> dict[str, Any]:
    """Return a committed mark as the checkpoint has it."""
    at = {"instant": applied.instant, "completion": applied.completion}
    return {**mark_fields(applied.mark), **at}


def applied_of(fields: Fields) -> Applied:
    """Return the committed mark in a checkpoint. Raises: `DataCorrupt`."""
    return Applied(mark_of(fields), fields.time("instant"), fields.time("completion"))
