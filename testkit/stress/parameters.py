"""The specification of a stress test: the table, its settings, and the content of each step."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

from testkit.interleaving.oracle import Oracle, Row, Rules, TableChange
from tidelock.table import Table
from tidelock.workload.table_program import LOCK_OPTIONS

COLUMNS: Final = {"id": "string", "ts": "int64", "region": "string", "v": "int64"}
REGIONS: Final = ("p", "q", "r")
STEP: Final = "stress.step"
"""The metadata key with the writer and step of a commit."""

_FILE: Final = "stress.json"
_TYPES: Final = {"string": pa.string(), "int64": pa.int64()}
_KEYS: Final = 24
_MODES: Final = {
    "occ": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "nbcc": "NON_BLOCKING_CONCURRENCY_CONTROL",
}
_VERBS: Final = {
    "upsert": 30,
    "insert": 14,
    "bulk_insert": 8,
    "delete": 12,
    "delete_anywhere": 8,
    "insert_overwrite": 5,
    "insert_overwrite_table": 1,
    "delete_partition": 3,
    "rewrite": 8,
    "evolve": 3,
}
"""The frequency of each operation."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of table, written as `mor-bucket-nbcc`."""

    type: str
    index: str
    mode: str

    def __str__(self) -> str:
        """Return the kind as one word."""
        return f"{self.type}-{self.index}-{self.mode}"

    @classmethod
    def parsed(cls, word: str) -> Kind:
        """Return the kind of a word. Raises: `ValueError`."""
        found = {str(kind): kind for kind in KINDS}
        if word not in found:
            raise ValueError(f"kind: expected one of {', '.join(found)}, got {word!r}")
        return found[word]

    @property
    def table_type(self) -> str:
        """The table type in Hudi's spelling."""
        return {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}[self.type]

    @property
    def rules(self) -> Rules:
        """How rows are merged; inserts into a bucket meet existing rows."""
        bucketed = self.index == "bucket"
        return Rules(
            by_event_time=True,
            merges_inserts=bucketed and self.type == "mor",
            merges_bulk=bucketed,
        )

    @property
    def options(self) -> dict[str, str]:
        """The settings of all processes: dead writers are detected, and history is removed, within
        seconds."""
        buckets = {"hoodie.bucket.index.num.buckets": "2"} if self.index == "bucket" else {}
        return {
            "hoodie.index.type": self.index.upper(),
            "hoodie.write.concurrency.mode": _MODES[self.mode],
            "hoodie.clean.failed.writes.policy": "LAZY",
            "hoodie.client.heartbeat.interval_in_ms": "1000",
            "hoodie.client.heartbeat.tolerable.misses": "3",
            "hoodie.clean.automatic": "false",
            "hoodie.archive.automatic": "false",
            "hoodie.clean.commits.retained": "6",
            "hoodie.keep.min.commits": "8",
            "hoodie.keep.max.commits": "12",
            "hoodie.compact.inline.max.delta.commits": "3",
            "hoodie.log.compaction.blocks.threshold": "3",
            "hoodie.write.set.null.for.missing.columns": "true",
            **buckets,
        }


KINDS: Final = (
    *(
        Kind(kind, index, "occ")
        for kind in ("cow", "mor")
        for index in ("simple", "bloom", "bucket")
    ),
    Kind("mor", "bucket", "nbcc"),
)
"""All kinds of tables; non-blocking writes need log files and buckets."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """The table of a stress test, and the behaviour of its processes."""

    uri: str
    kind: Kind
    seed: int = 1
    lock: str = "none"
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, str]:
        """The settings of every process."""
        locked = LOCK_OPTIONS if self.lock == "storage" else {}
        return {**locked, **self.kind.options}

    @property
    def oracle(self) -> Oracle:
        """The oracle for the content of the table."""
        return Oracle(self.kind.rules, COLUMNS)

    def save(self, folder: Path) -> None:
        """Write the specification for the processes."""
        (folder / _FILE).write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, folder: Path) -> Parameters:
        """Read the specification."""
        fields = json.loads((folder / _FILE).read_text())
        return cls(**{**fields, "kind": Kind(**fields["kind"])})

    def create(self) -> None:
        """Create the table, if it does not exist."""
        Table.create(
            self.uri,
            schema_of({}),
            key="id",
            ordering="ts",
            partition_by="region",
            type=self.kind.table_type,
            name="stress",
            exist_ok=True,
            settings=self.settings,
            options=self.options,
        ).close()

    def open(self) -> Table:
        """Open the table."""
        return Table.open(self.uri, settings=self.settings, options=self.options)

    def change(self, writer: str, step: int) -> TableChange:
        """Return a step, which depends only on the seed, the writer and the step number."""
        draw = random.Random(f"{self.seed}/{writer}/{step}")
        verb = draw.choices(list(_VERBS), list(_VERBS.values()))[0]
        partition = draw.choice(REGIONS)
        match verb:
            case "evolve":
                name = f"c{draw.randrange(4)}"
                rows = tuple(row | {name: step} for row in self._known(draw, step))
                return TableChange("upsert", rows, columns={name: "int64"})
            case "insert" | "bulk_insert":
                meets = self.kind.rules.merges_inserts and self.kind.rules.merges_bulk
                rows = self._known(draw, step) if meets and draw.random() < 0.5 else ()
                return TableChange(verb, rows or self._new_rows(draw, writer, step))
            case "delete":
                return TableChange(verb, keys=self._keys(draw, writer, step), partition=partition)
            case "delete_anywhere":
                return TableChange(verb, keys=self._keys(draw, writer, step))
            case "insert_overwrite":
                rows = tuple(row | {"region": partition} for row in self._known(draw, step))
                return TableChange(verb, _distinct(rows), partition=partition)
            case "delete_partition":
                return TableChange(verb, partition=partition)
            case _:
                return TableChange(verb, self._known(draw, step), number=step)

    def _known(self, draw: random.Random, step: int) -> tuple[Row, ...]:
        """Return rows of shared keys, some older than existing ones."""
        chosen = draw.sample(range(_KEYS), draw.randint(1, 4))
        times = [draw.choice([step, step, step // 2, 5]) for _ in chosen]
        return _distinct(
            _row(f"k{key:02}", draw.choice(REGIONS), ts, draw.randrange(1_000))
            for key, ts in zip(chosen, times, strict=True)
        )

    def _new_rows(self, draw: random.Random, writer: str, step: int) -> tuple[Row, ...]:
        """Return rows of keys that no other writer inserts."""
        return tuple(
            _row(f"{writer}.{step}.{number}", draw.choice(REGIONS), step, draw.randrange(1_000))
            for number in range(draw.randint(1, 3))
        )

    def _keys(self, draw: random.Random, writer: str, step: int) -> tuple[str, ...]:
        """Return keys to delete: shared ones, and own ones of earlier steps."""
        shared = [f"k{key:02}" for key in draw.sample(range(_KEYS), draw.randint(1, 3))]
        own = [f"{writer}.{max(1, step - draw.randint(1, 12))}.0" for _ in range(2)]
        return tuple(dict.fromkeys([*shared, *own]))


def schema_of(columns: Mapping[str, str]) -> pa.Schema:
    """Return the schema with these additional columns."""
    return pa.schema([(name, _TYPES[kind]) for name, kind in {**COLUMNS, **columns}.items()])


def _row(key: str, region: str, ts: int, v: int) -> Row:
    return {"id": key, "ts": ts, "region": region, "v": v}


def _distinct(rows: object) -> tuple[Row, ...]:
    """Return one row for each location."""
    found: dict[tuple[str, str], Row] = {}
    assert hasattr(rows, "__iter__")
    for row in rows:
        found.setdefault((row["region"], row["id"]), row)
    return tuple(found.values())
