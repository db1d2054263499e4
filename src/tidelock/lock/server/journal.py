"""The journal of a lock store: batches of decisions, written by create-if-absent.

A batch is one object, `journal/<epoch>/<n>.json`. A new instance *seals* the previous epoch: it
creates the name that the previous instance would write next, and continues in its own epoch. So at
most one instance can append, whatever clocks, pauses or partitions do, and a start never waits.

  * A batch is appended under the name after the last one this instance knows. If the name exists,
    the epoch is sealed, and the instance stops (`InstanceFenced`).
  * A checkpoint holds the state up to a batch. It is written before anything below it is deleted,
    and a seal is invalid if a checkpoint has passed it meanwhile. Seals are kept forever, so that
    an instance that was suspended for long still finds its next name taken.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tidelock.core.errors import ConfigInvalid, DataCorrupt, StoreUnreachable, TidelockError
from tidelock.core.ids import IdSource
from tidelock.core.limits import JOURNAL_BATCHES_KEPT, JOURNAL_OBJECT_BYTES_MAX
from tidelock.core.outcome import Landed, NotLanded, Outcome, Unknown
from tidelock.core.retry import Backoff
from tidelock.lock.server.entries import (
    FORMAT,
    NO_HASH,
    JournalEntry,
    LockGranted,
    entry_fields,
    entry_of,
)
from tidelock.lock.server.entries import follows as in_chain
from tidelock.lock.server.errors import InstanceFenced
from tidelock.storage.conditional import ReadbackPolicy, put_and_verify
from tidelock.storage.contract import Create, Match, ObjectStore
from tidelock.storage.probe import ensure_safe

logger = logging.getLogger(__name__)

_FOLDER = "journal/"
_CHECKPOINT = "checkpoint.json"
_PAUSE = Backoff(first_ms=50, max_ms=1_000)


@dataclass(frozen=True, slots=True, order=True)
class BatchPosition:
    """A batch by its epoch and number."""

    epoch: int
    batch: int

    @property
    def key(self) -> str:
        return f"{_FOLDER}{self.epoch:08d}/{self.batch:012d}.json"

    def next(self) -> BatchPosition:
        """The batch that follows in the same epoch."""
        return BatchPosition(self.epoch, self.batch + 1)

    @staticmethod
    def of(key: str) -> BatchPosition | None:
        """Return the position of a key; None for other keys."""
        epoch, _, batch = key.removeprefix(_FOLDER).removesuffix(".json").partition("/")
        is_batch = epoch.isdigit() and batch.isdigit()
        return BatchPosition(int(epoch), int(batch)) if is_batch else None


@dataclass(slots=True)
class JournalHistory:
    """The content of a journal when it is opened."""

    last: BatchPosition = field(default_factory=lambda: BatchPosition(0, 0))
    number: int = 0
    hash: str = NO_HASH
    grants: list[tuple[LockGranted, int]] = field(default_factory=list)
    entries: list[JournalEntry] = field(default_factory=list)
    """Entries after the checkpoint, in order."""
    earlier_entries: list[JournalEntry] = field(default_factory=list)
    """Retained entries before the checkpoint, for event streams that resume."""


@dataclass(slots=True)
class LockJournal:
    """The journal of one instance. Calls block, one at a time, except `is_sealed`."""

    store: ObjectStore
    ids: IdSource
    readback_policy: ReadbackPolicy
    last: BatchPosition = field(default_factory=lambda: BatchPosition(0, 0))
    closing: threading.Event = field(default_factory=threading.Event)
    _checkpoint_version: str = ""

    def read(self) -> JournalHistory:
        """Read the checkpoint and all entries. Raises: `DataCorrupt` if the chain is broken."""
        ensure_safe(self.store)
        history = self._checkpoint()
        boundary = history.last
        self._read_history(history)
        while True:
            position = history.last.next()
            fields = self._get(position.key)
            if fields is None:
                break
            for entry in _entries(fields, position):
                if not in_chain(entry, history.number, history.hash):
                    raise DataCorrupt(
                        f"{self.store.uri}/{position.key}: entry {entry.number} breaks the"
                        " hash chain",
                        hint="the journal was altered; restore it, or use another store",
                    )
                history.entries.append(entry)
                history.number, history.hash = entry.number, entry.hash
            history.last = BatchPosition(position.epoch + 1, 0) if fields.get("seal") else position
        assert history.last >= boundary
        self.last = history.last
        return history

    def seal(self, opened: JournalEntry) -> bool:
        """Take over the journal with the entry `opened`; False if it grew since it was read."""
        position = self.last.next()
        match self._put(position.key, self._body([opened], seal=True), Create()):
            case Landed():
                if self._checkpoint().last >= position:
                    # The name had been used and deleted: the seal is invalid.
                    return False
                self.last = BatchPosition(position.epoch + 1, 0)
                return True
            case NotLanded():
                return False
            case Unknown(cause):
                raise StoreUnreachable(f"{self.store.uri}: cannot open the journal: {cause}")

    def append(self, entries: list[JournalEntry]) -> None:
        """Write `entries`, with retries. Raises: `InstanceFenced` if this epoch was sealed."""
        position = self.last.next()
        body = self._body(entries)

        def attempt() -> bool:
            match self._put(position.key, body, Create()):
                case Landed():
                    return True
                case NotLanded() if self.store.head(position.key) is not None:
                    raise self.fenced()
                case _:
                    # Same name and same bytes: a retry cannot write them twice.
                    return False

        self._retry_until_done(attempt)
        self.last = position

    def verify_current(self) -> None:
        """Verify, with retries, that no other instance has taken over. Raises: `InstanceFenced`."""

        def attempt() -> bool:
            if self.is_sealed():
                raise self.fenced()
            return True

        self._retry_until_done(attempt)

    def is_sealed(self) -> bool:
        """Return whether another instance has taken over. Safe during an append."""
        fields = self._get(self.last.next().key)
        return fields is not None and bool(fields.get("seal"))

    def checkpoint(self, fields: dict[str, Any], at: BatchPosition) -> None:
        """Write a checkpoint as of `at`, then delete the batches below it."""
        fields = {"format": FORMAT, "epoch": at.epoch, "batch": at.batch, **fields}
        fields["nonce"] = self.ids.uuid()
        mode = Match(self._checkpoint_version) if self._checkpoint_version else Create()
        outcome = self._put(_CHECKPOINT, json.dumps(fields).encode(), mode)
        if isinstance(outcome, Landed):
            self._checkpoint_version = outcome.version
            self._delete_below(at)

    def fenced(self) -> InstanceFenced:
        """Return the error of an instance whose epoch was sealed."""
        return InstanceFenced(
            f"another instance of the lock service has taken over {self.store.uri}",
            hint="run one instance per store; stop one, or use another store",
        )

    def _retry_until_done(self, attempt: Callable[[], bool]) -> None:
        """Repeat `attempt` until it returns True or the journal is closed."""
        failures = 0
        while not self.closing.is_set():
            try:
                if attempt():
                    return
            except InstanceFenced:
                raise
            except TidelockError as error:
                logger.warning("journal: the store failed, retrying: %s", error)
            self.readback_policy.clock.sleep_ms(_PAUSE.delay_ms(failures, self.ids.jitter()))
            failures += 1
        raise StoreUnreachable(f"{self.store.uri}: the journal was closed during a request")

    def _body(self, entries: list[JournalEntry], *, seal: bool = False) -> bytes:
        fields = {
            "format": FORMAT,
            "nonce": self.ids.uuid(),
            "seal": seal,
            "entries": [entry_fields(entry) for entry in entries],
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    def _put(self, key: str, body: bytes, mode: Create | Match) -> Outcome:
        return put_and_verify(self.store, key, body, mode, policy=self.readback_policy)

    def _get(self, key: str) -> dict[str, Any] | None:
        found = self.store.get(key, end=JOURNAL_OBJECT_BYTES_MAX + 1)
        if found is None:
            return None
        if key == _CHECKPOINT:
            self._checkpoint_version = found.version
        try:
            fields = json.loads(found.body)
        except (ValueError, RecursionError) as error:
            raise DataCorrupt(f"{self.store.uri}/{key}: expected JSON: {error}") from error
        if not isinstance(fields, dict) or fields.get("format") != FORMAT:
            raise DataCorrupt(
                f"{self.store.uri}/{key}: expected journal format {FORMAT}",
                hint="another version of tidelock wrote it; use that version",
            )
        return fields

    def _checkpoint(self) -> JournalHistory:
        fields = self._get(_CHECKPOINT)
        if fields is None:
            return JournalHistory()
        try:
            grants = [
                (entry.decision, entry.at_epoch_ms)
                for entry in map(entry_of, fields["grants"])
                if isinstance(entry.decision, LockGranted)
            ]
            position = BatchPosition(int(fields["epoch"]), int(fields["batch"]))
            return JournalHistory(position, int(fields["number"]), str(fields["hash"]), grants)
        except (KeyError, TypeError, ValueError) as error:
            raise DataCorrupt(f"{self.store.uri}/{_CHECKPOINT}: {error!r}") from error

    def _read_history(self, history: JournalHistory) -> None:
        """Read the retained batches before the checkpoint that form a chain up to it."""
        positions = sorted(position for position in self._positions() if position <= history.last)
        found: list[JournalEntry] = []
        for position in positions[-2 * JOURNAL_BATCHES_KEPT :]:
            fields = self._get(position.key)
            for entry in _entries(fields, position) if fields else ():
                if found and not in_chain(entry, found[-1].number, found[-1].hash):
                    found = []
                found.append(entry)
        if found and (found[-1].number, found[-1].hash) == (history.number, history.hash):
            history.earlier_entries = found

    def _positions(self) -> list[BatchPosition]:
        found = (BatchPosition.of(meta.key) for meta in self.store.list(_FOLDER))
        return [position for position in found if position is not None]

    def _delete_below(self, at: BatchPosition) -> None:
        positions = self._positions()
        seals: dict[int, BatchPosition] = {}
        for position in positions:
            seals[position.epoch] = max(position, seals.get(position.epoch, position))
        kept = BatchPosition(at.epoch, max(0, at.batch - JOURNAL_BATCHES_KEPT))
        for position in positions:
            is_seal = position.epoch < at.epoch and position == seals[position.epoch]
            if position < kept and not is_seal:
                self.store.delete(position.key)


def _entries(fields: dict[str, Any], position: BatchPosition) -> list[JournalEntry]:
    entries = fields.get("entries")
    if not isinstance(entries, list):
        raise DataCorrupt(f"{position.key}: expected a list of entries")
    return [entry_of(item) for item in entries]


_TAIL_BYTES = 1024 * 1024


@dataclass(slots=True)
class AuditFile:
    """A copy of the journal as lines of JSON, for auditors. The journal is authoritative."""

    path: Path
    _file: IO[str] | None = None
    _last: dict[str, int] = field(default_factory=dict)

    def write(self, store: str, entries: list[JournalEntry]) -> None:
        """Append the entries of a lock store that are not in the file yet."""
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
            raise ConfigInvalid(f"{self.path}: cannot open the audit file: {error}") from error
        size = os.fstat(handle).st_size
        start = max(0, size - _TAIL_BYTES)
        tail = os.pread(handle, _TAIL_BYTES, start)
        # The first line of the tail may be incomplete.
        lines = tail.split(b"\n")[1 if start else 0 :]
        for line in lines:
            with suppress(ValueError, KeyError, TypeError):
                fields = json.loads(line)
                self._last[str(fields["store"])] = int(fields["n"])
        if lines and lines[-1]:
            # The last line is incomplete after a crash: end it.
            os.write(handle, b"\n")
        return os.fdopen(handle, "a", encoding="utf-8")
