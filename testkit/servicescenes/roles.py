"""The work of one process of a scene, and the request at which it is stopped or killed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from testkit.tablecrash.stops import OffClock, Stop, StoppingStore
from tidelock.core.errors import TidelockError
from tidelock.operations.read import snapshot_now
from tidelock.services.clustering import Clustering
from tidelock.services.compaction import Compaction
from tidelock.services.log_compaction import LogCompaction
from tidelock.services.runner import ServiceRun, clustering, compaction, log_compaction
from tidelock.storage.local import LocalStore
from tidelock.table import Table
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
"""Clock offset at which every heartbeat has expired, but no plan is older than the delay."""
AFTER_DELAY_MS = 120 * MINUTE_MS
"""Clock offset at which every plan is older than the delay."""


@dataclass(slots=True)
class At:
    """The `nth` request of a verb whose key contains `part`."""

    verb: str
    part: str
    nth: int = 1
    seen: int = 0

    def __call__(self, _number: int, verb: str, key: str) -> bool:
        """Return whether a request matches."""
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
    """The work of a process on the table at `root`: a role, and the instant of a plan.

    Its clock is `clock_ms` ahead; `stop` is the request at which it stops or kills itself. It
    writes its result to `result_file`.
    """

    role: str
    root: Path
    result_file: Path
    instant: str = ""
    stop: Stop | None = None
    clock_ms: int = 0
    options: Mapping[str, object] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)


def run_part(part: Part) -> None:
    """Run the work of a process, and write its result."""
    store = StoppingStore(LocalStore(part.root), part.stop)
    result: dict[str, Any] = {"executed": [], "left": []}
    options = {**OPTIONS, **part.options}
    with Table(snapshot_now(store), options=options, clock=OffClock(part.clock_ms)) as table:
        try:
            result |= _run_role(table, part)
        except TidelockError as error:
            result |= {"error": type(error).__name__, "message": str(error)}
    result["requests"] = store.requests
    partial = part.result_file.with_suffix(".partial")
    partial.write_text(json.dumps(result))
    partial.rename(part.result_file)


def _run_role(table: Table, part: Part) -> dict[str, Any]:
    match part.role:
        case "compaction":
            return {"executed": [Compaction(table.writer()).execute(part.instant).instant]}
        case "clustering":
            return {"executed": [Clustering(table.writer()).execute(part.instant).instant]}
        case "logcompaction":
            return {"executed": [LogCompaction(table.writer()).execute(part.instant).instant]}
        case "clean":
            return _service_result(table.clean())
        case "compact":
            return _service_result(table.compact())
        case "cluster":
            return _service_result(table.cluster())
        case "write":
            report = table.upsert(rows_of(part.rows))
            return {"executed": [report.instant]}
        case "give up":
            _give_up(table, part.instant)
            return {}
        case _:
            raise ValueError(part.role)


def _give_up(table: Table, instant: str) -> None:
    """Begin to execute a plan, and abort it."""
    transactions = table.writer().transactions
    claimed = transactions.claim(instant, "COMPACT")
    if isinstance(claimed, Transaction):
        claimed.rollback("given up")


def _service_result(run: ServiceRun) -> dict[str, Any]:
    return {
        "executed": [each.instant for each in run.executed],
        "left": [[each.instant, each.why] for each in run.skipped],
    }


def rows_of(rows: Mapping[str, int]) -> pa.Table:
    """Return rows as an Arrow table."""
    found = [{"id": key, "value": value} for key, value in rows.items()]
    return pa.Table.from_pylist(found, schema=SCHEMA)


NOT_REMOVABLE: Final = {
    "tidelock.clustering.removable": "false",
    "tidelock.log.compaction.removable": "false",
}
"""Settings with which no plan is removable."""


def make_table(root: Path, service: str, *, stays: bool = False) -> None:
    """Create a table with a pending plan of `service`, removable unless `stays`."""
    kind = "COPY_ON_WRITE" if service == "clustering" else "MERGE_ON_READ"
    options = dict(OPTIONS)
    with Table.create(str(root), SCHEMA, key="id", type=kind, options=options) as table:
        table.upsert(rows_of({"a": 1, "b": 1}))
        table.upsert(rows_of({"c": 2, "d": 2}))
        for value in (3, 4) if service != "clustering" else ():
            table.upsert(rows_of({"a": value, "c": value}))
        chosen = {**OPTIONS, **(NOT_REMOVABLE if stays else {})}
        SERVICES[service](table.writer(), chosen).schedule()
