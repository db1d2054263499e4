"""Checkpoints that are too long for a mark: in a file of the table, with its name in the mark."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tidelock.base.errors import DataCorrupt, TidelockError, Unavailable
from tidelock.base.outcome import Unknown
from tidelock.store.contract import Create, ObjectStore
from tidelock.store.readback import Patience, put_checked

INLINE_CHARACTERS_MAX: Final = 16_384
FOLDER: Final = ".hoodie/.tidelock/streamer"
_NAMED: Final = "stored:"


def is_stored(text: str) -> bool:
    """Tell whether a checkpoint is the name of a file of its table."""
    return text.startswith(_NAMED)


@dataclass
class Spill:
    """Long texts in the table's store; the name of each follows from what it says."""

    store: Callable[[], ObjectStore]
    patience: Patience = field(default_factory=Patience)
    _named: list[str] = field(default_factory=list, init=False)

    def kept(self, text: str) -> str:
        """Return the text, or a name for it once it is stored. Raises: `Unavailable`."""
        if len(text) <= INLINE_CHARACTERS_MAX:
            return text
        key = f"{FOLDER}/{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
        put_named(self.store(), key, text.encode(), self.patience)
        return f"{_NAMED}{key}"

    def whole(self, text: str) -> str:
        """Return the text that a checkpoint is or names. Raises: `DataCorrupt`."""
        if not text.startswith(_NAMED):
            return text
        key = text.removeprefix(_NAMED)
        found = self.store().get(key)
        if found is None:
            raise DataCorrupt(
                f"{self.store().uri}/{key}: the list of files that were read is gone",
                hint="another streamer of this writer id may have gone on; start this one again",
            )
        return found.body.decode()

    def sweep(self, at: str) -> None:
        """Remove what was stored two commits before `at`; others may still read the one before."""
        if not at.startswith(_NAMED) or at in self._named:
            return
        self._named.append(at)
        if len(self._named) > 2:
            old = self._named.pop(0).removeprefix(_NAMED)
            try:
                self.store().delete(old)
            except TidelockError:
                return  # it is small, and harms nobody


def put_named(store: ObjectStore, key: str, body: bytes, patience: Patience) -> None:
    """Create an object whose name follows from its bytes; one that is there has them already.

    Raises: `Unavailable`, and what `ObjectStore.put` raises.
    """
    outcome = put_checked(store, key, body, Create(), patience=patience)
    if isinstance(outcome, Unknown) and store.head(key) is None:
        raise Unavailable(f"{store.uri}/{key} was not written: {outcome.cause}")
