"""How far a source has been read, as commits say it. Pure.

The mark of a writer in the ledger decides (C78). The same stands in the commit's metadata, under
Hudi's keys for Hudi's readers, and under ours with the writer's name: Hudi's have room for one
writer only, whoever came last.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelock.base.errors import Conflict, DataCorrupt

HUDI_KEY: Final = "streamer.checkpoint.key.v2"
HUDI_KEY_OLD: Final = "deltastreamer.checkpoint.key"
HUDI_RESET: Final = "streamer.checkpoint.reset.key.v2"
HUDI_RESET_OLD: Final = "deltastreamer.checkpoint.reset_key"
HUDI_IGNORE: Final = "deltastreamer.checkpoint.ignore_key"
OURS: Final = "tidelock.streamer.checkpoint"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where the next batch of a writer begins.

    `source` is what was read, `at` the place in it, in the words of its kind of source. `reset` is
    the place that a user had the writer begin from, so that it is not begun from twice; `ignored`
    is the word by which it was made to forget where it was.
    """

    writer: str
    source: str
    at: str
    reset: str = ""
    ignored: str = ""

    @property
    def data(self) -> dict[str, str]:
        """What of it stands in the mark."""
        ours = {"writer": self.writer, "source": self.source, "at": self.at, "reset": self.reset}
        if self.ignored:
            ours["ignored"] = self.ignored
        return {OURS: json.dumps(ours, separators=(",", ":"), ensure_ascii=False)}

    def metadata(self, hudi: str | None) -> dict[str, str]:
        """Return it for Hudi's readers; `hudi` is the place in Hudi's words, if it has any."""
        found = {} if hudi is None else {HUDI_KEY: hudi, HUDI_KEY_OLD: hudi}
        if self.reset:
            found |= {HUDI_RESET: self.reset, HUDI_RESET_OLD: self.reset}
        if self.ignored:
            found[HUDI_IGNORE] = self.ignored
        return found


def checkpoint_of(data: Mapping[str, str] | str, *, where: str) -> Checkpoint:
    """Return the checkpoint in a mark. Raises: `DataCorrupt`."""
    if isinstance(data, str) or OURS not in data:
        raise DataCorrupt(
            f"{where}: the mark is not a streamer's", hint="give the streamer another writer id"
        )
    try:
        held = json.loads(data[OURS])
        return Checkpoint(
            writer=str(held["writer"]),
            source=str(held["source"]),
            at=str(held["at"]),
            reset=str(held["reset"]),
            ignored=str(held.get("ignored", "")),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DataCorrupt(f"{where}: the checkpoint cannot be read: {error!r}") from error


def hudi_place(metadata: Mapping[str, str]) -> str | None:
    """Return the checkpoint that Hudi's own streamer left in a commit; None if it left none."""
    return metadata.get(HUDI_KEY) or metadata.get(HUDI_KEY_OLD) or None


def check_source(known: Checkpoint, source: str) -> None:
    """Refuse to go on in one source from a place in another. Raises: `Conflict`."""
    if known.source != source:
        raise Conflict(
            f"the writer {known.writer!r} has read {known.source}, and is now to read {source}",
            hint="give each source a writer id of its own (tidelock.streamer.writer.id), or say"
            " where it begins with --checkpoint, --ignore-checkpoint or"
            " --initial-checkpoint-provider",
        )
