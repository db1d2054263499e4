"""A store with a planted bug: it writes in place. The harness must detect it."""

from __future__ import annotations

import os

from tidelock.core.outcome import Landed
from tidelock.storage.contract import Create, Match, PutMode, PutReply, Refused
from tidelock.storage.local import LocalStore


class InPlaceStore(LocalStore):
    """Writes naively: open, truncate, write in pieces, sync."""

    def put(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        """Overwrite the old bytes, in two pieces."""
        found = self.head(key)
        if isinstance(mode, Create) and found is not None:
            return Refused()
        if isinstance(mode, Match) and (found is None or found.version != mode.version):
            return Refused()
        path = f"{self.uri.removeprefix('file://')}/{key}"
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            os.write(file, body[: len(body) // 2])
            os.write(file, body[len(body) // 2 :])
            os.fsync(file)
        finally:
            os.close(file)
        written = self.head(key)
        assert written is not None
        return Landed(written.version)
