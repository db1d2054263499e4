"""Records that cannot be written: put aside with the reason, or the end of the batch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidelock.base.errors import InvalidInput
from tidelock.pipeline.streamer import config as c
from tidelock.pipeline.streamer.reading import Bad
from tidelock.pipeline.streamer.sources.spilling import put_named
from tidelock.store.readback import Patience
from tidelock.store.uri import canonical, open_store

FOLDER: Final = ".hoodie/.tidelock/quarantine"
COUNT_KEY: Final = "tidelock.streamer.malformed"
FILE_KEY: Final = "tidelock.streamer.quarantine"
_SHOWN: Final = 80


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A folder of files of JSON lines: the record, the reason and the source of each."""

    mode: c.OnMalformed
    uri: str
    settings: Mapping[str, object]
    most: int

    @classmethod
    def read(cls, settings: Mapping[str, object], table: str) -> Quarantine:
        """Return what the settings ask for. Raises: `ConfigInvalid`."""
        chosen = c.QUARANTINE_PATH.value(settings)
        place = canonical(chosen) if chosen else f"{canonical(table)}/{FOLDER}"
        return cls(
            c.member(c.OnMalformed, c.ON_MALFORMED, settings),
            place,
            {k: v for k, v in settings.items() if not c.is_streamers(k)},
            c.MALFORMED_MAX.required(settings),
        )

    @property
    def puts_aside(self) -> bool:
        """Whether malformed records do not stop the streamer."""
        return self.mode is c.OnMalformed.QUARANTINE

    def take(self, bad: Sequence[Bad], *, writer: str, source: str, end: str) -> dict[str, str]:
        """Put records aside before their batch is committed; return what the commit says of it.

        The file's name follows from the batch, so a batch that is tried again writes it once.
        Raises: `InvalidInput` if records are not to be put aside, or are too many.
        """
        if not bad:
            return {}
        shown = f"{bad[0].reason}: {bad[0].record[:_SHOWN]!r}"
        if not self.puts_aside:
            raise InvalidInput(
                f"{source}: {len(bad)} malformed records, the first: {shown}",
                hint=f"correct the source, or set {c.ON_MALFORMED.key}={c.OnMalformed.QUARANTINE}",
            )
        if len(bad) > self.most:
            raise InvalidInput(
                f"{source}: more than {self.most} malformed records in one batch, the first:"
                f" {shown}",
                hint="is it the right source, with the right schema? nothing of it was written",
            )
        lines = [
            json.dumps({"record": each.record, "reason": each.reason, "source": source})
            for each in bad
        ]
        body = ("\n".join(lines) + "\n").encode()
        named = hashlib.sha256(f"{writer}\n{end}".encode() + body).hexdigest()[:20]
        key = f"{_folder(writer)}/{named}.jsonl"
        store = open_store(self.uri, self.settings)
        try:
            put_named(store, key, body, Patience())
        finally:
            store.close()
        return {COUNT_KEY: str(len(bad)), FILE_KEY: f"{self.uri}/{key}"}


def _folder(writer: str) -> str:
    """Return the writer's id as the name of a folder."""
    plain = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in writer)
    return plain[:80].strip("-") or "writer"
