"""Checkpoints of the streamer in commits. Pure.

The application transaction of a writer in the ledger is authoritative (C78). The checkpoint is also
in the commit metadata: under Hudi's keys, for Hudi's readers, and under our own key with the writer
id. Hudi's keys hold the checkpoint of one writer only, the last one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tidelock.core.errors import Conflict, DataCorrupt

HUDI_KEY: Final = "streamer.checkpoint.key.v2"
HUDI_KEY_OLD: Final = "deltastreamer.checkpoint.key"
HUDI_RESET: Final = "streamer.checkpoint.reset.key.v2"
HUDI_RESET_OLD: Final = "deltastreamer.checkpoint.reset_key"
HUDI_IGNORE: Final = "deltastreamer.checkpoint.ignore_key"
OURS: Final = "tidelock.streamer.checkpoint"


@dataclass(frozen=True, slots=True)
class StreamCheckpoint:
    """The start of the next batch of a writer.

    `source` is the name of the source, `position` the position in the format of that source.
    `reset` is the last value of `--checkpoint`, and `ignored` the last value of
    `--ignore-checkpoint`; each value takes effect once.
    """

    writer: str
    source: str
    position: str
    reset: str = ""
    ignored: str = ""

    @property
    def data(self) -> dict[str, str]:
        """The data of the application transaction."""
        fields = {
            "writer": self.writer,
            "source": self.source,
            "at": self.position,
            "reset": self.reset,
        }
        if self.ignored:
            fields["ignored"] = self.ignored
        return {OURS: json.dumps(fields, separators=(",", ":"), ensure_ascii=False)}

    def metadata(self, hudi: str | None) -> dict[str, str]:
        """Return the metadata for Hudi's readers; `hudi` is the position in Hudi's format."""
        found = {} if hudi is None else {HUDI_KEY: hudi, HUDI_KEY_OLD: hudi}
        if self.reset:
            found |= {HUDI_RESET: self.reset, HUDI_RESET_OLD: self.reset}
        if self.ignored:
            found[HUDI_IGNORE] = self.ignored
        return found


def checkpoint_of(data: Mapping[str, str] | str, *, where: str) -> StreamCheckpoint:
    """Return the checkpoint of an application transaction. Raises: `DataCorrupt`."""
    if isinstance(data, str) or OURS not in data:
        raise DataCorrupt(
            f"{where}: the application transaction was not written by a streamer",
            hint="use another writer id",
        )
    try:
        stored = json.loads(data[OURS])
        return StreamCheckpoint(
            writer=str(stored["writer"]),
            source=str(stored["source"]),
            position=str(stored["at"]),
            reset=str(stored["reset"]),
            ignored=str(stored.get("ignored", "")),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DataCorrupt(f"{where}: cannot parse the checkpoint: {error!r}") from error


def hudi_checkpoint(metadata: Mapping[str, str]) -> str | None:
    """Return the checkpoint of Hudi's streamer in commit metadata; None if there is none."""
    return metadata.get(HUDI_KEY) or metadata.get(HUDI_KEY_OLD) or None


def check_source(known: StreamCheckpoint, source: str) -> None:
    """Reject a checkpoint of another source. Raises: `Conflict`."""
    if known.source != source:
        raise Conflict(
            f"writer {known.writer!r}: expected the source {known.source}, got {source}",
            hint="use a separate writer id for each source (tidelock.streamer.writer.id), or set"
            " the start with --checkpoint, --ignore-checkpoint or --initial-checkpoint-provider",
        )


@dataclass(frozen=True, slots=True)
class BatchStart:
    """The start position of a batch, and the version of its application transaction.

    `reset` and `ignored` are as in `StreamCheckpoint`.
    """

    position: str | None
    version: int
    reset: str = ""
    ignored: str = ""


@dataclass(frozen=True, slots=True)
class UserCheckpoint:
    """The user's options for the start position; each value takes effect once.

    `checkpoint` is the position to start from. A new value of `ignore` starts the source as if it
    had never been read.
    """

    checkpoint: str = ""
    ignore: str = ""
    has_initial: bool = False
    """Whether there is a provider of the start position in a new source."""


def next_start(
    user: UserCheckpoint,
    stored: StreamCheckpoint | None,
    *,
    version: int,
    source: str,
    fresh: Callable[[], str | None],
    first: Callable[[], str | None],
) -> BatchStart:
    """Return the start of the next batch, after the `stored` checkpoint of the writer.

    `fresh` returns the start position if the checkpoint is ignored, `first` that of a source which
    this writer has not read. Raises: `Conflict` if the writer has read another source, and the user
    has not set a start position.
    """
    reset = user.checkpoint or ("" if stored is None else stored.reset)
    ignored = user.ignore or ("" if stored is None else stored.ignored)
    if user.ignore and (stored is None or stored.ignored != user.ignore):
        return BatchStart(user.checkpoint or fresh(), version, reset, ignored)
    if user.checkpoint and (stored is None or stored.reset != user.checkpoint):
        return BatchStart(user.checkpoint, version, reset, ignored)
    if stored is None or (user.has_initial and stored.source != source):
        return BatchStart(first(), version, reset, ignored)
    check_source(stored, source)
    return BatchStart(stored.position, version, reset, ignored)
