"""A lock's two objects in a store: performs what the machine asks for.

Every failure of the store becomes an answer of the machine's vocabulary here, and nowhere else.
"""

from __future__ import annotations

from tidelock.base.errors import DataCorrupt, Retry, Throttled, TidelockError
from tidelock.base.limits import RECORD_BYTES_MAX
from tidelock.lock import events as e
from tidelock.lock.record import decode, decode_counter, encode, encode_counter
from tidelock.store.contract import Busy, ObjectStore, PutMode, PutReply
from tidelock.store.probe import ensure_proven

LOCKS_FOLDER = ".hoodie/.locks"
LOCK_KEY = f"{LOCKS_FOLDER}/table_lock.json"
TOKENS_KEY = f"{LOCKS_FOLDER}/table_lock.tokens.json"


class LockObjects:
    """The record and the token counter of the resource at the root of `store` (P1, P5).

    `last_error` keeps the store's own words about the last failure, for the owner to read.
    """

    def __init__(self, store: ObjectStore, *, probe: bool = False) -> None:
        """Use the objects below the root of `store`.

        With `probe` the first request waits until the store is proven to honour conditions.
        """
        self._store = store
        self._proven = not probe
        self.last_error: TidelockError | None = None

    @property
    def uri(self) -> str:
        """The lock object, for messages."""
        return f"{self._store.uri}/{LOCK_KEY}"

    @property
    def hopeless(self) -> bool:
        """Tell whether the last failure is one that trying again does not mend."""
        return self.last_error is not None and self.last_error.retry is Retry.NEVER

    def perform(self, request: e.Request) -> e.Reading | PutReply:
        """Do what the machine asks for and return the answer in its words."""
        self.last_error = None
        problem = self._prove()
        if problem is not None:
            return problem
        match request:
            case e.ReadRecord():
                return self._read(LOCK_KEY)
            case e.ReadCounter():
                return self._read(TOKENS_KEY)
            case e.WriteRecord(mode, record):
                return self._write(LOCK_KEY, encode(record), mode)
            case e.WriteCounter(mode, counter):
                return self._write(TOKENS_KEY, encode_counter(counter), mode)

    def _prove(self) -> e.ReadFailed | None:
        """A client that has seen nothing reads first (P12), so a failed proof fails a read."""
        if self._proven:
            return None
        try:
            ensure_proven(self._store)
        except TidelockError as error:
            self.last_error = error
            return e.ReadFailed(str(error), _pause_of(error))
        self._proven = True
        return None

    def _read(self, key: str) -> e.Reading:
        try:
            # One byte more than a record may have: enough to know that it is not one.
            found = self._store.get(key, end=RECORD_BYTES_MAX + 1)
        except TidelockError as error:
            self.last_error = error
            return e.ReadFailed(str(error), _pause_of(error))
        if found is None:
            return e.Absent()
        try:
            if key == LOCK_KEY:
                return e.Found(found.version, decode(found.body))
            return e.FoundCounter(found.version, decode_counter(found.body))
        except DataCorrupt as error:
            self.last_error = type(error)(
                f"{self._store.uri}/{key}: {error.message}",
                hint=error.hint or f"see `tidelock lock doctor {self._store.uri}`",
            )
            return e.Unreadable(str(error))

    def _write(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        try:
            return self._store.put(key, body, mode)
        except TidelockError as error:
            # The store contract: an exception from put proves that nothing was written.
            self.last_error = error
            return Busy(_pause_of(error), cause=str(error))


def _pause_of(error: TidelockError) -> int | None:
    return error.retry_after_ms if isinstance(error, Throttled) else None
