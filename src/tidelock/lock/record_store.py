"""The two objects of a lock in a store: performs the requests of the lock machine.

This is the only place where failures of the store are translated to replies of the machine.
"""

from __future__ import annotations

from tidelock.core.clock import Clock
from tidelock.core.errors import DataCorrupt, Retry, Throttled, TidelockError
from tidelock.core.limits import RECORD_BYTES_MAX
from tidelock.lock import events as e
from tidelock.lock.record import decode, decode_counter, encode, encode_counter
from tidelock.lock.session import Operation, SessionPause, SessionReply
from tidelock.storage.contract import Busy, ObjectStore, PutMode, PutReply
from tidelock.storage.probe import ensure_safe

LOCKS_FOLDER = ".hoodie/.locks"
LOCK_KEY = f"{LOCKS_FOLDER}/table_lock.json"
TOKENS_KEY = f"{LOCKS_FOLDER}/table_lock.tokens.json"


class LockObjects:
    """The record and the token counter of the resource at the root of `store` (P1, P5).

    `last_error` is the error of the last failed request, for messages to the owner.
    """

    def __init__(self, store: ObjectStore, *, probe: bool = False) -> None:
        """Use the objects under the root of `store`.

        With `probe` the first request tests whether the store supports conditional writes.
        """
        self._store = store
        self._proven = not probe
        self.last_error: TidelockError | None = None

    @property
    def uri(self) -> str:
        return f"{self._store.uri}/{LOCK_KEY}"

    @property
    def failed_permanently(self) -> bool:
        """Whether the last request failed with an error that a retry cannot fix."""
        return self.last_error is not None and self.last_error.retry is Retry.NEVER

    def run(self, operation: Operation, clock: Clock) -> e.Result:
        """Perform the requests of `operation`, and wait for its pauses, until it returns."""
        reply: SessionReply = None
        try:
            while True:
                request = operation.send(reply)
                if isinstance(request, SessionPause):
                    clock.sleep_ms(request.duration_ms)
                    reply = None
                else:
                    reply = self.perform(request)
        except StopIteration as stop:
            result: e.Result = stop.value
            return result

    def perform(self, request: e.Request) -> e.ReadReply | PutReply:
        """Perform a request of the machine and return the reply."""
        self.last_error = None
        failure = self._check_store()
        if failure is not None:
            return failure
        match request:
            case e.ReadRecord():
                return self._read(LOCK_KEY)
            case e.ReadCounter():
                return self._read(TOKENS_KEY)
            case e.WriteRecord(mode, record):
                return self._write(LOCK_KEY, encode(record), mode)
            case e.WriteCounter(mode, counter):
                return self._write(TOKENS_KEY, encode_counter(counter), mode)

    def _check_store(self) -> e.ReadFailed | None:
        """Probe the store once. The first request of a client is a read (P12), so a read fails."""
        if self._proven:
            return None
        try:
            ensure_safe(self._store)
        except TidelockError as error:
            return self._read_failed(error)
        self._proven = True
        return None

    def _read(self, key: str) -> e.ReadReply:
        try:
            # One byte more than the maximum size of a record, to detect larger objects.
            found = self._store.get(key, end=RECORD_BYTES_MAX + 1)
        except TidelockError as error:
            return self._read_failed(error)
        if found is None:
            return e.Absent()
        try:
            if key == LOCK_KEY:
                return e.Found(found.version, decode(found.body))
            return e.FoundCounter(found.version, decode_counter(found.body))
        except DataCorrupt as error:
            self.last_error = type(error)(
                f"{self._store.uri}/{key}: {error.message}",
                hint=error.hint or f"run `tidelock lock doctor {self._store.uri}`",
            )
            return e.Unreadable(str(error))

    def _read_failed(self, error: TidelockError) -> e.ReadFailed:
        self.last_error = error
        return e.ReadFailed(str(error), _retry_after_ms(error))

    def _write(self, key: str, body: bytes, mode: PutMode) -> PutReply:
        try:
            return self._store.put(key, body, mode)
        except TidelockError as error:
            # By the store contract, an exception from `put` means that nothing was written.
            self.last_error = error
            return Busy(_retry_after_ms(error), cause=str(error))


def _retry_after_ms(error: TidelockError) -> int | None:
    return error.retry_after_ms if isinstance(error, Throttled) else None
