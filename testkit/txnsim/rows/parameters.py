"""The parameters of a schedule with rows: the table, its jobs and its services."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import Enum

from testkit.txnsim.plan import Fault, Plan

PARTITIONS = ("p", "q", "r")
"""The table starts with rows in the first one."""

KEYS = ("a", "b", "c", "d", "e")
BUCKETS = 2


class Op(Enum):
    """What a job does."""

    UPSERT = "upsert"
    INSERT = "insert"
    BULK_INSERT = "bulk insert"
    DELETE = "delete"
    DELETE_ANYWHERE = "delete without partition"
    TOMBSTONE = "upsert of deleted rows"
    OVERWRITE = "overwrite"
    OVERWRITE_TABLE = "overwrite table"
    DELETE_PARTITION = "delete partition"
    REWRITE = "read and write"
    ADD_COLUMN = "upsert with a new column"
    INSERT_COLUMN = "insert with a new column"
    WIDEN = "upsert with a wider column"

    @property
    def is_blind(self) -> bool:
        """Whether keys are added without looking them up."""
        return self in (Op.INSERT, Op.BULK_INSERT, Op.INSERT_COLUMN)

    @property
    def deletes(self) -> bool:
        """Whether keys are deleted."""
        return self in (Op.DELETE, Op.DELETE_ANYWHERE, Op.TOMBSTONE)


class Work(Enum):
    """The steps of a table service."""

    COMPACT_PLAN = "schedule a compaction"
    COMPACT = "execute compactions"
    LOG_COMPACT = "compact logs"
    CLUSTER_PLAN = "schedule a clustering"
    CLUSTER = "execute clusterings"
    CLEAN = "clean"
    ARCHIVE = "archive"
    ROLLBACK = "roll back the last commit"
    SAVEPOINT = "savepoint"
    RESTORE = "restore to the savepoint"


class ExternalAct(Enum):
    """What an external writer does at the end, while our tables are open."""

    NOTHING = "nothing"
    COMMIT = "a commit"
    METADATA_TABLE = "a metadata table"
    LOCAL_TIME = "a timeline in local time"


@dataclass(frozen=True, slots=True)
class InputRow:
    """An input row of a job."""

    partition: str
    key: str
    ts: int
    value: int


@dataclass(frozen=True, slots=True)
class Job:
    """One write. `column` is the name of a column that it adds."""

    name: str
    op: Op
    rows: tuple[InputRow, ...] = ()
    column: str = ""

    def __str__(self) -> str:
        """Return a short description."""
        rows = " ".join(f"{row.partition}/{row.key}@{row.ts}={row.value}" for row in self.rows)
        return f"{self.name} {self.op.value} {rows}"


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of one schedule.

    `page` is the number of objects per listing request, 0 for all. `services` has the steps of each
    service process. `reads` is the number of reads; with `follows` the reader follows commits one
    by one. With `ahead` the clock of services is eight days fast. `late_ms` is the maximum delay of
    a request. With `restarts`, the counter of the table's lock is reset, if there is a lock.
    """

    merges: bool
    index: str
    mode: str
    event_time: bool
    small_files: bool
    page: int
    jobs: tuple[tuple[Job, ...], ...]
    services: tuple[tuple[Work, ...], ...]
    reads: int
    retained: int
    kept_entries: int
    misses: int
    follows: bool
    ahead: bool
    late_ms: float
    restarts: bool
    external_act: ExternalAct

    def options(self) -> dict[str, object]:
        """Return the writer options of the table, by Hudi's names."""
        return {
            "hoodie.index.type": self.index,
            "hoodie.bucket.index.num.buckets": BUCKETS,
            "hoodie.write.concurrency.mode": self.mode,
            "hoodie.clean.automatic": False,
            "hoodie.archive.automatic": False,
            "hoodie.client.heartbeat.interval_in_ms": 1_000,
            "hoodie.client.heartbeat.tolerable.misses": self.misses,
            "hoodie.parquet.compression.codec": "uncompressed",
            "hoodie.clean.commits.retained": self.retained,
            "hoodie.keep.min.commits": self.retained + 1,
            "hoodie.keep.max.commits": self.retained + 2,
            "hoodie.write.set.null.for.missing.columns": True,
            "hoodie.index.bloom.num_entries": 8,
            "hoodie.bloom.index.filter.dynamic.max.entries": 16,
            "hoodie.log.compaction.blocks.threshold": 2,
            "hoodie.clustering.expiration.threshold.mins": 0,
            **({} if self.small_files else {"hoodie.parquet.small.file.limit": 0}),
        }


def without_stale(plan: Plan) -> Plan:
    """Return the plan with a consistent store: reads return what was written."""
    faults = tuple(fault for fault in plan.faults if fault is not Fault.STALE)
    on_requests = tuple(pair for pair in plan.request_faults if pair[1] is not Fault.STALE)
    return replace(plan, faults=faults, request_faults=on_requests)


def draw_rows(seed: int, ops: tuple[Op, ...] = ()) -> Parameters:
    """Draw the parameters separately from the faults, so that a seed's faults stay the same.

    With `ops`, all jobs are of these kinds.
    """
    rng = random.Random(f"rows {seed}")
    merges = rng.random() < 0.65
    index = rng.choice(("BUCKET", "BUCKET", "SIMPLE", "BLOOM"))
    modes = ["OPTIMISTIC_CONCURRENCY_CONTROL"]
    if merges and index == "BUCKET":
        modes.append("NON_BLOCKING_CONCURRENCY_CONTROL")
    event_time = rng.random() < 0.5
    usual = ops or _usual(rng, event_time=event_time)
    counts = [rng.choice((2, 3, 4)) for _ in range(3)]
    jobs = tuple(
        tuple(_job(rng, f"w{writer}x{n}", usual) for n in range(count))
        for writer, count in enumerate(counts)
    )
    return Parameters(
        merges=merges,
        index=index,
        mode=rng.choice(modes),
        event_time=event_time,
        small_files=rng.random() < 0.7,
        page=rng.choice((0, 0, 3, 10)),
        jobs=jobs,
        services=_services(rng, merges=merges, bucketed=index == "BUCKET"),
        reads=rng.choice((0, 3, 6)),
        retained=rng.choice((1, 2, 20)),
        kept_entries=rng.choice((4, 512)),
        misses=rng.choice((1, 2)),
        follows=rng.random() < 0.5,
        ahead=rng.random() < 0.1,
        late_ms=rng.choice((8_000.0, 8_000.0, 40_000.0)),
        restarts=rng.random() < 0.5,
        external_act=rng.choices(tuple(ExternalAct), (15, 3, 1, 1))[0],
    )


def _usual(rng: random.Random, *, event_time: bool) -> tuple[Op, ...]:
    """Return the operations of one schedule: a subset, so that rare pairs occur."""
    every = [op for op in Op if not (event_time and op is Op.TOMBSTONE)]
    return (Op.UPSERT, *rng.sample(every, rng.choice((2, 3, 5))))


def _job(rng: random.Random, name: str, usual: tuple[Op, ...]) -> Job:
    op = rng.choice(usual)
    number = 1_000 * (1 + int(name[1])) + 100 * int(name[3])
    wide = 2**40 if op is Op.WIDEN else 0
    partition = rng.choice(PARTITIONS[: rng.choice((1, 2, 3))])
    chosen = rng.sample(KEYS, rng.choice((1, 1, 2, 3)))
    rows = []
    for place, key in enumerate(sorted(chosen)):
        at = partition if rng.random() < 0.8 else rng.choice(PARTITIONS)
        rows.append(InputRow(at, key, rng.choice((5, 5, 10, 15)), wide + number + place))
    column = f"x_{name}" if op in (Op.ADD_COLUMN, Op.INSERT_COLUMN) else ""
    return Job(name, op, tuple(rows), column)


def _services(rng: random.Random, *, merges: bool, bucketed: bool) -> tuple[tuple[Work, ...], ...]:
    some: list[Work] = []
    if merges:
        some += [Work.COMPACT_PLAN, Work.COMPACT] * 2
        some += [Work.LOG_COMPACT] if rng.random() < 0.4 else []
    if not bucketed:
        some += [Work.CLUSTER_PLAN, Work.CLUSTER]
    if rng.random() < 0.4:
        some.append(Work.CLEAN)
    if rng.random() < 0.25:
        some += [Work.CLEAN, Work.ARCHIVE]
    if rng.random() < 0.1:
        some.append(Work.ROLLBACK)
    if rng.random() < 0.1:
        some += [Work.SAVEPOINT, Work.RESTORE]
    if not some:
        return ()
    served = [tuple(rng.choice(some) for _ in range(rng.choice((4, 6, 8)))) for _ in range(2)]
    return tuple(served[: rng.choice((0, 1, 1, 2, 2))])
