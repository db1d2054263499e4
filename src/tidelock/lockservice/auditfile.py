"""The audit of the lock service as a file: a line of JSON per decision, chained by hashes (V10)."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tidelock.base.errors import ConfigInvalid
from tidelock.lockservice.entries import Entry, entry_fields

_TAIL_BYTES = 1024 * 1024


@dataclass(slots=True)
class AuditFile:
    """Appends what is not there yet. The journal is what counts; this is for people."""

    path: Path
    _file: IO[str] | None = None
    _last: dict[str, int] = field(default_factory=dict)

    def write(self, store: str, entries: list[Entry]) -> None:
        """Append the entries of one store that follow those in the file."""
        if self._file is None:
            self._file = self._opened()
        for entry in entries:
            if entry.number > self._last.get(store, 0):
                self._file.write(json.dumps({"store": store, **entry_fields(entry)}) + "\n")
                self._last[store] = entry.number
        self._file.flush()

    def _opened(self) -> IO[str]:
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise ConfigInvalid(f"the audit file {self.path} cannot be opened: {error}") from error
        size = os.fstat(handle).st_size
        start = max(0, size - _TAIL_BYTES)
        tail = os.pread(handle, _TAIL_BYTES, start)
        # The first line of a tail may be a part of one.
        lines = tail.split(b"\n")[1 if start else 0 :]
        for line in lines:
            with suppress(ValueError, KeyError, TypeError):
                fields = json.loads(line)
                self._last[str(fields["store"])] = int(fields["n"])
        if lines and lines[-1]:
            # A crash tore the last line: end it, so that what follows is whole.
            os.write(handle, b"\n")
        return os.fdopen(handle, "a", encoding="utf-8")
