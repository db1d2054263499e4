"""What the programs of a fleet agreed on: which table, on what terms, how fast."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from tidelock.ops.fleet.hands import SCHEMA
from tidelock.ops.fleet.steps import Terms
from tidelock.tableservice.table import Table

_FILE: Final = "fleet.json"

BRISK: Final = {
    # Deaths are noticed, and the past is cleared away, within seconds instead of minutes.
    "hoodie.client.heartbeat.interval_in_ms": "1000",
    "hoodie.client.heartbeat.tolerable.misses": "3",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.clean.commits.retained": "10",
    "hoodie.keep.min.commits": "20",
    "hoodie.keep.max.commits": "30",
    "hoodie.compact.inline.max.delta.commits": "5",
}

LOCKED: Final = {
    # What Hudi asks of several writers, with the shortest lease that its settings allow: a holder
    # that was killed is in the way for seconds.
    "hoodie.write.lock.provider": (
        "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
    ),
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.lock.storage.validity.timeout.secs": "10",
    "hoodie.write.lock.storage.renew.interval.secs": "1",
}


@dataclass(frozen=True, slots=True)
class Articles:
    """The table of a fleet, and how its programs behave."""

    uri: str
    terms: Terms = field(default_factory=Terms)
    table_type: str = "MERGE_ON_READ"
    settings: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=lambda: dict(BRISK))
    pause_ms: int = 100
    service_pause_ms: int = 250
    reader_pause_ms: int = 250
    deletes: bool = False
    """Some program deletes rows."""

    @property
    def all_options(self) -> dict[str, str]:
        """What Spark is told: settings of the store, and of writes."""
        return {**self.settings, **self.options}

    def save(self, folder: Path) -> None:
        """Write them down for the programs."""
        (folder / _FILE).write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, folder: Path) -> Articles:
        """Read what was written down."""
        fields = json.loads((folder / _FILE).read_text())
        return cls(**{**fields, "terms": Terms(**fields["terms"])})

    def create(self) -> None:
        """Make the table, unless it is there."""
        Table.create(
            self.uri,
            SCHEMA,
            key="id",
            partition_by="region",
            type=self.table_type,
            name="orders",
            exist_ok=True,
            settings=self.settings,
            options=self.options,
        ).close()

    def open(self) -> Table:
        """Open the table."""
        return Table.open(self.uri, settings=self.settings, options=self.options)
