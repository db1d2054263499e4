"""One table on S3, shared by Hudi's Java writers and us."""

from __future__ import annotations

import multiprocessing
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Event

from testkit.java import Hudi, HudiWriter, hudi_writer
from testkit.servers import S3Server
from tests.contract.stores import s3_settings
from tests.interop import contender
from tidelock.lock.client import Lock
from tidelock.lock.record import LockRecord, decode
from tidelock.lock.record_store import LOCK_KEY
from tidelock.storage.contract import ObjectStore
from tidelock.storage.uri import open_store

BUCKET = "tidelock-interop"

_spawn = multiprocessing.get_context("spawn")


def signal() -> Event:
    """Return an event that processes can share."""
    return _spawn.Event()


@dataclass(frozen=True, slots=True)
class Table:
    """A base path, and the processes that write there; they end with the test."""

    hudi: Hudi
    server: S3Server
    name: str
    stack: ExitStack

    @property
    def uri(self) -> str:
        """The base path in the form both sides use."""
        return f"s3://{BUCKET}/{self.name}"

    @property
    def settings(self) -> dict[str, object]:
        """Our settings for the server."""
        return s3_settings(self.server)

    def java(self, *, endpoint: str | None = None) -> HudiWriter:
        """Start a Java process with one of Hudi's lock providers."""
        running = hudi_writer(self.hudi, self.server, self.uri, endpoint=endpoint)
        return self.stack.enter_context(running)

    def ours(self) -> Lock:
        """Return our lock in this process."""
        opened = contender.our_lock(self.uri, self.settings)
        self.stack.callback(opened.close)
        return opened

    def holder_process(self) -> SpawnProcess:
        """Start a process that acquires and keeps our lock; return when it holds it."""
        holding = signal()
        process = _spawn.Process(
            target=contender.hold, args=(self.uri, self.settings, holding), daemon=True
        )
        process.start()
        self.stack.callback(process.kill)
        assert holding.wait(120)
        return process

    def contender_process(
        self, name: str, count: int, journal: str, marker: str, *, start: Event
    ) -> SpawnProcess:
        """Start a process that runs critical sections under our lock once `start` is set.

        It is ready when this returns, so that it does not miss its rivals.
        """
        ready = signal()
        process = _spawn.Process(
            target=contender.sections,
            args=(self.uri, self.settings),
            kwargs={
                "name": name,
                "count": count,
                "journal": journal,
                "marker": marker,
                "ready": ready,
                "start": start,
            },
            daemon=True,
        )
        process.start()
        self.stack.callback(process.kill)
        assert ready.wait(120)
        return process

    def store(self) -> ObjectStore:
        """Return the objects of the table."""
        store = open_store(self.uri, self.settings)
        self.stack.callback(store.close)
        return store

    def lock_bytes(self) -> bytes:
        """Return the bytes of the lock file."""
        found = self.store().get(LOCK_KEY)
        assert found is not None
        return found.body

    def record(self) -> LockRecord:
        """Return the parsed lock file."""
        return decode(self.lock_bytes())
