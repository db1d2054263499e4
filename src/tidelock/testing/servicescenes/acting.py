"""What one process of a scene does, and where it is stopped or killed meanwhile."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tidelock.base.errors import TidelockError
from tidelock.operation.reads import snapshot_now
from tidelock.store.local import LocalStore
from tidelock.tableservice.clustering.execute import Clustering
from tidelock.tableservice.compaction.execute import Compaction
from tidelock.tableservice.logcompaction.execute import LogCompaction
from tidelock.tableservice.running import Ran, clustering, compaction, log_compaction
from tidelock.tableservice.table import Table
from tidelock.testing.tablecrash.stops import OffClock, Stop, StoppingStore
from tidelock.txn.transaction import Transaction

SCHEMA = pa.schema([("id", pa.string()), ("value", pa.int64())])
LIFE_MS = 300_000
OPTIONS: Mapping[str, object] = {
    "hoodie.client.heartbeat.interval_in_ms": "1000",
    "hoodie.client.heartbeat.tolerable.misses": str(LIFE_MS // 1000),
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.clean.commits.retained": "2",
    "hoodie.log.compaction.blocks.threshold": "2",
}
SERVICES = {
    "compaction": compaction,
    "clustering": clustering,
    "logcompaction": log_compaction,
}

MINUTE_MS = 60_000
AFTER_EXPIRY_MS = 2 * LIFE_MS
"""How far the clock of somebody is ahead who finds every heartbeat dead and no plan old."""
AFTER_DELAY_MS = 120 * MINUTE_MS
"""How far the clock of somebody is ahead who finds every plan older than the delay."""


@dataclass(slots=True)
class At:
    """The `nth` request of a verb whose key contains `part`."""

    verb: str
    part: str
    nth: int = 1
    seen: int = 0

    def __call__(self, _number: int, verb: str, key: str) -> bool:
        """Tell whether a request is the one."""
        if verb != self.verb or self.part not in key:
            return False
        self.seen += 1
        return self.seen == self.nth


HEARTBEAT = At("put", ".hoodie/.heartbeat/")
FIRST_ENTRY = At("put", ".hoodie/.tidelock/ledger/")
SECOND_ENTRY = At("put", ".hoodie/.tidelock/ledger/", 2)
THIRD_ENTRY = At("put", ".hoodie/.tidelock/ledger/", 3)
INFLIGHT = At("put", ".inflight")
DATA_FILE = At("upload", ".parquet")
LOG_FILE = At("upload", ".log.")


@dataclass(frozen=True, slots=True)
class Part:
    """What a process does to the table at `root`: a role, and the plan it is about.

    `clock_ms` is how far its clock is ahead; `stop` is where it strikes itself.
    """

    role: str
    root: Path
    told: Path
    instant: str = ""
    stop: Stop | None = None
    clock_ms: int = 0
    options: Mapping[str, object] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)


def act(part: Part) -> None:
    """Play a part, and write down what came of it."""
    store = StoppingStore(LocalStore(part.root), part.stop)
    told: dict[str, Any] = {"executed": [], "left": []}
    options = {**OPTIONS, **part.options}
    with Table(snapshot_now(store), options=options, clock=OffClock(part.clock_ms)) as table:
        try:
            told |= _played(table, part)
        except TidelockError as error:
            told |= {"error": type(error).__name__, "message": str(error)}
    told["requests"] = store.requests
    partial = part.told.with_suffix(".partial")
    partial.write_text(json.dumps(told))
    partial.rename(part.told)


def _played(table: Table, part: Part) -> dict[str, Any]:
    match part.role:
        case "compaction":
            return {"executed": [Compaction(table.writer()).execute(part.instant).instant]}
        case "clustering":
            return {"executed": [Clustering(table.writer()).execute(part.instant).instant]}
        case "logcompaction":
            return {"executed": [LogCompaction(table.writer()).execute(part.instant).instant]}
        case "clean":
            return _told(table.clean())
        case "compact":
            return _told(table.compact())
        case "cluster":
            return _told(table.cluster())
        case "write":
            report = table.upsert(rows_of(part.rows))
            return {"executed": [report.instant]}
        case "give up":
            _give_up(table, part.instant)
            return {}
        case _:
            raise ValueError(part.role)


def _give_up(table: Table, instant: str) -> None:
    """Begin to execute a plan and stop of one's own accord."""
    transactions = table.writer().transactions
    claimed = transactions.claim(instant, "COMPACT")
    if isinstance(claimed, Transaction):
        claimed.rollback("given up")


def _told(ran: Ran) -> dict[str, Any]:
    return {
        "executed": [each.instant for each in ran.executed],
        "left": [[each.instant, each.why] for each in ran.left],
    }


def rows_of(rows: Mapping[str, int]) -> pa.Table:
    """Return rows as a writer gives them."""
    found = [{"id": key, "value": value} for key, value in rows.items()]
    return pa.Table.from_pylist(found, schema=SCHEMA)


STAYS: Final = {
    "tidelock.clustering.removable": "false",
    "tidelock.log.compaction.removable": "false",
}
"""The settings with which no plan is removable."""


def make_table(root: Path, service: str, *, stays: bool = False) -> None:
    """Create a table on which a plan of `service` waits to be executed; it may be one to stay."""
    kind = "COPY_ON_WRITE" if service == "clustering" else "MERGE_ON_READ"
    options = dict(OPTIONS)
    with Table.create(str(root), SCHEMA, key="id", type=kind, options=options) as table:
        table.upsert(rows_of({"a": 1, "b": 1}))
        table.upsert(rows_of({"c": 2, "d": 2}))
        for value in (3, 4) if service != "clustering" else ():
            table.upsert(rows_of({"a": value, "c": value}))
        chosen = {**OPTIONS, **(STAYS if stays else {})}
        SERVICES[service](table.writer(), chosen).schedule()
