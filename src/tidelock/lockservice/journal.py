"""The lock service's journal: decisions made durable by create-if-absent, many at a time.

A batch is one object, `journal/<epoch>/<n>.json`. Who starts an instance *seals* the epoch before
it: it creates the very name that the instance before would write next, and goes on in an epoch of
its own. So at most one instance can append, whatever clocks, pauses or partitions do, and a start
waits for nobody.

  * A batch is appended on the name after the last one this instance knows; a refusal means that the
    epoch is sealed, and ends the instance (`Deposed`).
  * A checkpoint holds the fold of everything up to a batch. It moves before anything below it is
    deleted, and a seal is void if the checkpoint has passed it meanwhile. Seals stay for ever, so
    that an instance which slept for long still finds its next name taken.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tidelock.base.errors import DataCorrupt, StoreUnreachable, TidelockError
from tidelock.base.ids import IdSource
from tidelock.base.limits import JOURNAL_BATCHES_KEPT, JOURNAL_OBJECT_BYTES_MAX
from tidelock.base.outcome import Landed, NotLanded, Unknown
from tidelock.base.retry import Backoff
from tidelock.lockservice.answers import Deposed
from tidelock.lockservice.entries import FORMAT, NO_HASH, Entry, Granted, entry_fields, entry_of
from tidelock.lockservice.entries import follows as in_chain
from tidelock.store.contract import Create, Match, ObjectStore
from tidelock.store.probe import ensure_proven
from tidelock.store.readback import Patience, put_checked

logger = logging.getLogger(__name__)

_FOLDER = "journal/"
_CHECKPOINT = "checkpoint.json"
_PAUSE = Backoff(first_ms=50, most_ms=1_000)


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A batch by its epoch and number."""

    epoch: int
    batch: int

    @property
    def key(self) -> str:
        """The object of this batch."""
        return f"{_FOLDER}{self.epoch:08d}/{self.batch:012d}.json"

    def next(self) -> Place:
        """The batch that follows in the same epoch."""
        return Place(self.epoch, self.batch + 1)

    @staticmethod
    def of(key: str) -> Place | None:
        """Return the place that a key names; None for anything else."""
        epoch, _, batch = key.removeprefix(_FOLDER).removesuffix(".json").partition("/")
        return Place(int(epoch), int(batch)) if epoch.isdigit() and batch.isdigit() else None


@dataclass(slots=True)
class Past:
    """What a journal holds when it is opened."""

    last: Place = field(default_factory=lambda: Place(0, 0))
    number: int = 0
    hash: str = NO_HASH
    grants: list[tuple[Granted, int]] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    """Those after the checkpoint, in order."""
    history: list[Entry] = field(default_factory=list)
    """Those before it that are still there, for event streams that resume."""


@dataclass(slots=True)
class Journal:
    """One instance's hold on a journal. Calls block; one at a time, except `is_sealed`."""

    store: ObjectStore
    ids: IdSource
    patience: Patience
    last: Place = field(default_factory=lambda: Place(0, 0))
    closing: threading.Event = field(default_factory=threading.Event)
    _checkpoint_version: str = ""

    def read(self) -> Past:
        """Return everything that was decided so far.

        Raises: `DataCorrupt` when the chain of hashes is broken, and what the store raises.
        """
        ensure_proven(self.store)
        past = self._checkpoint()
        boundary = past.last
        self._read_history(past)
        while True:
            place = past.last.next()
            fields = self._get(place.key)
            if fields is None:
                break
            for entry in _entries(fields, place):
                if not in_chain(entry, past.number, past.hash):
                    raise DataCorrupt(
                        f"{self.store.uri}/{place.key}: entry {entry.number} breaks the hash chain",
                        hint="the journal was altered; restore it, or start on another place",
                    )
                past.entries.append(entry)
                past.number, past.hash = entry.number, entry.hash
            past.last = Place(place.epoch + 1, 0) if fields.get("seal") else place
        assert past.last >= boundary
        self.last = past.last
        return past

    def seal(self, opened: Entry) -> bool:
        """Take the journal over with the entry `opened`; False when it grew since it was read."""
        place = self.last.next()
        body = self._body([opened], seal=True)
        match put_checked(self.store, place.key, body, Create(), patience=self.patience):
            case Landed():
                if self._checkpoint().last >= place:
                    # The name was free because it had been used and deleted: the seal is void.
                    return False
                self.last = Place(place.epoch + 1, 0)
                return True
            case NotLanded():
                return False
            case Unknown(cause):
                raise StoreUnreachable(f"{self.store.uri}: the journal cannot be opened: {cause}")

    def append(self, entries: list[Entry]) -> None:
        """Make `entries` durable, however long the store takes.

        Raises: `Deposed` when another instance has sealed this epoch.
        """
        place = self.last.next()
        body = self._body(entries)

        def attempt() -> bool:
            match put_checked(self.store, place.key, body, Create(), patience=self.patience):
                case Landed():
                    return True
                case NotLanded() if self.store.head(place.key) is not None:
                    raise self.deposed()
                case _:
                    # The name and the bytes are the same: asking again cannot write them twice.
                    return False

        self._insist(attempt)
        self.last = place

    def prove(self) -> None:
        """Make sure that no other instance has taken over, however long the store takes.

        Raises: `Deposed` when one has.
        """

        def attempt() -> bool:
            if self.is_sealed():
                raise self.deposed()
            return True

        self._insist(attempt)

    def is_sealed(self) -> bool:
        """Tell whether another instance has taken over; an append may be under way meanwhile.

        Raises: what the store raises.
        """
        fields = self._get(self.last.next().key)
        return fields is not None and bool(fields.get("seal"))

    def checkpoint(self, fields: dict[str, Any], at: Place) -> None:
        """Write the fold as of `at`, then delete what it made superfluous."""
        fields = {"format": FORMAT, "epoch": at.epoch, "batch": at.batch, **fields}
        fields["nonce"] = self.ids.uuid()
        mode = Match(self._checkpoint_version) if self._checkpoint_version else Create()
        outcome = put_checked(
            self.store, _CHECKPOINT, json.dumps(fields).encode(), mode, patience=self.patience
        )
        if isinstance(outcome, Landed):
            self._checkpoint_version = outcome.version
            self._delete_below(at)

    def deposed(self) -> Deposed:
        """Return what an instance ends with whose epoch was sealed."""
        return Deposed(
            f"another instance of the lock service has taken over {self.store.uri}",
            hint="one instance serves a place; stop one of them, or give it another one",
        )

    def _insist(self, attempt: Callable[[], bool]) -> None:
        """Repeat `attempt` until it says that it is done, or the journal is closed."""
        failures = 0
        while not self.closing.is_set():
            try:
                if attempt():
                    return
            except Deposed:
                raise
            except TidelockError as error:
                logger.warning("the journal waits for its store: %s", error)
            self.patience.clock.sleep_ms(_PAUSE.delay_ms(failures, self.ids.jitter()))
            failures += 1
        raise StoreUnreachable(f"{self.store.uri}: the journal was closed during a request")

    def _body(self, entries: list[Entry], *, seal: bool = False) -> bytes:
        fields = {
            "format": FORMAT,
            "nonce": self.ids.uuid(),
            "seal": seal,
            "entries": [entry_fields(entry) for entry in entries],
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    def _get(self, key: str) -> dict[str, Any] | None:
        found = self.store.get(key, end=JOURNAL_OBJECT_BYTES_MAX + 1)
        if found is None:
            return None
        if key == _CHECKPOINT:
            self._checkpoint_version = found.version
        try:
            fields = json.loads(found.body)
        except (ValueError, RecursionError) as error:
            raise DataCorrupt(f"{self.store.uri}/{key} is not JSON: {error}") from error
        if not isinstance(fields, dict) or fields.get("format") != FORMAT:
            raise DataCorrupt(
                f"{self.store.uri}/{key} is not of the journal format {FORMAT}",
                hint="another version of tidelock wrote it; use that one",
            )
        return fields

    def _checkpoint(self) -> Past:
        fields = self._get(_CHECKPOINT)
        if fields is None:
            return Past()
        try:
            grants = [
                (entry.decision, entry.at_epoch_ms)
                for entry in map(entry_of, fields["grants"])
                if isinstance(entry.decision, Granted)
            ]
            place = Place(int(fields["epoch"]), int(fields["batch"]))
            return Past(place, int(fields["number"]), str(fields["hash"]), grants)
        except (KeyError, TypeError, ValueError) as error:
            raise DataCorrupt(f"{self.store.uri}/{_CHECKPOINT}: {error!r}") from error

    def _read_history(self, past: Past) -> None:
        """Read the batches before the checkpoint that still follow each other up to it."""
        places = sorted(
            place
            for meta in self.store.list(_FOLDER)
            if (place := Place.of(meta.key)) is not None and place <= past.last
        )
        found: list[Entry] = []
        for place in places[-2 * JOURNAL_BATCHES_KEPT :]:
            fields = self._get(place.key)
            for entry in _entries(fields, place) if fields else ():
                if found and not in_chain(entry, found[-1].number, found[-1].hash):
                    found = []
                found.append(entry)
        if found and (found[-1].number, found[-1].hash) == (past.number, past.hash):
            past.history = found

    def _delete_below(self, at: Place) -> None:
        places = [p for meta in self.store.list(_FOLDER) if (p := Place.of(meta.key)) is not None]
        seals: dict[int, Place] = {}
        for place in places:
            seals[place.epoch] = max(place, seals.get(place.epoch, place))
        kept = Place(at.epoch, max(0, at.batch - JOURNAL_BATCHES_KEPT))
        for place in places:
            is_seal = place.epoch < at.epoch and place == seals[place.epoch]
            if place < kept and not is_seal:
                self.store.delete(place.key)


def _entries(fields: dict[str, Any], place: Place) -> list[Entry]:
    entries = fields.get("entries")
    if not isinstance(entries, list):
        raise DataCorrupt(f"the journal object {place.key} has no list of entries")
    return [entry_of(item) for item in entries]
