"""Where the next batch of a writer begins: where its last one ended, unless it is told. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidelock.pipeline.streamer.checkpoint import Checkpoint, check_source


@dataclass(frozen=True, slots=True)
class Place:
    """Where a batch begins, and the version that its mark will have.

    `reset` and `ignored` are what the writer was told last about its beginning.
    """

    at: str | None
    version: int
    reset: str = ""
    ignored: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """What the user says about the beginning; each is heeded once, as the commits remember it.

    `checkpoint` is the place to begin from. `ignore` is any word that was not said before: the
    source is begun as if it had never been read.
    """

    checkpoint: str = ""
    ignore: str = ""
    has_initial: bool = False
    """Whether there is somebody who says where a source is begun that the writer has not read."""


def next_place(
    told: Told,
    held: Checkpoint | None,
    *,
    version: int,
    source: str,
    anew: Callable[[], str | None],
    first: Callable[[], str | None],
) -> Place:
    """Return where to begin; `held` is what the writer's mark says, and `version` the next one.

    `anew` gives the place of a source whose past does not count, `first` that of one which this
    writer has not read. Raises: `Conflict` for a writer that read another source, and was not told
    how to go on in this one.
    """
    reset = told.checkpoint or ("" if held is None else held.reset)
    ignored = told.ignore or ("" if held is None else held.ignored)
    if told.ignore and (held is None or held.ignored != told.ignore):
        return Place(told.checkpoint or anew(), version, reset, ignored)
    if told.checkpoint and (held is None or held.reset != told.checkpoint):
        return Place(told.checkpoint, version, reset, ignored)
    if held is None or (told.has_initial and held.source != source):
        return Place(first(), version, reset, ignored)
    check_source(held, source)
    return Place(held.at, version, reset, ignored)
