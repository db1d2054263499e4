"""Stores checkpoints that are too long for the ledger in files of the table."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tidelock.core.errors import DataCorrupt, TidelockError, Unavailable
from tidelock.core.outcome import Unknown
from tidelock.core.system import SystemClock, SystemIds
from tidelock.storage.conditional import ReadbackPolicy, put_and_verify
from tidelock.storage.contract import Create, ObjectStore

INLINE_CHARACTERS_MAX: Final = 16_384
FOLDER: Final = ".hoodie/.tidelock/streamer"
_REFERENCE: Final = "stored:"


def is_stored(text: str) -> bool:
    """Return whether a checkpoint is a reference to a file of its table."""
    return text.startswith(_REFERENCE)


@dataclass
class CheckpointFiles:
    """Content-addressed checkpoint files in the table's store."""

    store: Callable[[], ObjectStore]
    _stored_names: list[str] = field(default_factory=list, init=False)

    def store_if_long(self, text: str) -> str:
        """Return the text, or store it and return a reference. Raises: `Unavailable`."""
        if len(text) <= INLINE_CHARACTERS_MAX:
            return text
        key = f"{FOLDER}/{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
        policy = ReadbackPolicy(SystemClock(), SystemIds())
        put_content_addressed(self.store(), key, text.encode(), policy)
        return f"{_REFERENCE}{key}"

    def load(self, text: str) -> str:
        """Return the text of a checkpoint, or of the file it references. Raises: `DataCorrupt`."""
        if not text.startswith(_REFERENCE):
            return text
        key = text.removeprefix(_REFERENCE)
        found = self.store().get(key)
        if found is None:
            raise DataCorrupt(
                f"{self.store().uri}/{key}: the checkpoint file is missing",
                hint="another streamer with this writer id may have advanced; restart this one",
            )
        return found.body.decode()

    def delete_superseded(self, position: str) -> None:
        """Delete the file of two commits before; other streamers may still read the last one."""
        if not position.startswith(_REFERENCE) or position in self._stored_names:
            return
        self._stored_names.append(position)
        if len(self._stored_names) > 2:
            old = self._stored_names.pop(0).removeprefix(_REFERENCE)
            try:
                self.store().delete(old)
            except TidelockError:
                return  # a small orphaned file does no harm


def put_content_addressed(
    store: ObjectStore, key: str, body: bytes, readback: ReadbackPolicy
) -> None:
    """Create an object named by its content; an existing object has the same content.

    Raises: `Unavailable`, and what `ObjectStore.put` raises.
    """
    outcome = put_and_verify(store, key, body, Create(), policy=readback)
    if isinstance(outcome, Unknown) and store.head(key) is None:
        raise Unavailable(f"{store.uri}/{key}: the write failed: {outcome.cause}")
