"""Whether rows are what their meta columns say, file slice by file slice, a batch at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.base.errors import TidelockError
from tidelock.kernel.merge import MergeRule
from tidelock.kernel.read import slice_batches
from tidelock.ops.validate.findings import Finding, problem
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.keys import KeyRule, partition_paths, record_keys
from tidelock.table.schema.meta import COMMIT_TIME, FILE_NAME, PARTITION_PATH, RECORD_KEY

CHECK = "rows"


@dataclass(frozen=True, slots=True)
class RowCheck:
    """How the rows of a table are read and judged. Without `keys` keys are not made again."""

    store: ObjectStore
    schema: pa.Schema
    merge: MergeRule
    keys: KeyRule | None
    committed: Collection[str]
    """Request times of completed writes."""
    start: str | None
    """Rows of writes before this time are of archived writes."""

    @property
    def columns(self) -> list[str]:
        """The columns that must be read for it."""
        wanted = [COMMIT_TIME, RECORD_KEY, PARTITION_PATH, FILE_NAME]
        if self.keys is not None:
            wanted += [_top(name, self.schema) for name in (*self.keys.keys, *self.keys.partitions)]
        return list(dict.fromkeys(wanted))

    def batches(self, piece: FileSlice, columns: list[str]) -> Iterator[pa.Table]:
        """Yield columns of the merged rows of a slice."""
        return slice_batches(self.store, piece, self.schema, rule=self.merge, columns=columns)


@dataclass(slots=True)
class SliceReport:
    """What is wrong with rows of one slice: how many of each kind, and the first key of them."""

    where: str
    rows: int = 0
    wrong: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    unreadable: Finding | None = None

    def count(self, what: str, wrong: pa.Array, batch: pa.Table) -> None:
        """Count the rows for which `wrong` is true."""
        found = batch.column(RECORD_KEY).filter(wrong)
        if len(found):
            self.wrong[what] += len(found)
            self.first.setdefault(what, str(found[0].as_py()))

    def findings(self) -> Iterator[Finding]:
        """Yield one finding for each kind."""
        for what, number in sorted(self.wrong.items()):
            rows = "1 row" if number == 1 else f"{number:,} rows"
            yield problem(
                CHECK,
                self.where,
                f"{rows}, the first with the key {self.first[what]!r}: {what}",
                "find the writer that made this file; writing these rows again mends them",
            )
        if self.unreadable is not None:
            yield self.unreadable


def examined(
    check: RowCheck, piece: FileSlice, on_keys: Callable[[pa.ChunkedArray], None]
) -> SliceReport:
    """Judge the rows of a slice, and hand on the record keys of each batch."""
    where = piece.base.key if piece.base is not None else piece.logs[0].key
    report = SliceReport(where)
    try:
        for batch in check.batches(piece, check.columns):
            report.rows += batch.num_rows
            _judge(check, piece, batch, report)
            on_keys(batch.column(RECORD_KEY))
    except TidelockError as error:
        step = error.hint or "restore the file from a copy, or roll back the write that made it"
        said = error.message.removeprefix(f"{check.store.uri}/")
        report.unreadable = problem(CHECK, where, f"its rows cannot be read: {said}", step)
    return report


def _judge(check: RowCheck, piece: FileSlice, batch: pa.Table, report: SliceReport) -> None:
    own = [piece.file_id, *([piece.base.name] if piece.base is not None else [])]
    report.count("the record key is null", pc.is_null(batch.column(RECORD_KEY)), batch)
    report.count(
        f"{PARTITION_PATH} is not the folder {piece.partition!r}",
        _differs(batch.column(PARTITION_PATH), piece.partition),
        batch,
    )
    report.count(
        f"{FILE_NAME} is neither the base file nor the file group",
        pc.invert(_among(batch.column(FILE_NAME), own)),
        batch,
    )
    times = batch.column(COMMIT_TIME)
    known = _among(times, sorted(check.committed))
    if check.start is not None:
        known = pc.or_(known, pc.fill_null(pc.less(times, check.start), fill_value=False))
    report.count(f"{COMMIT_TIME} is of no completed write", pc.invert(known), batch)
    if check.keys is not None:
        _judge_keys(check.keys, piece, batch, report)


def _judge_keys(rule: KeyRule, piece: FileSlice, batch: pa.Table, report: SliceReport) -> None:
    try:
        made, folders = record_keys(batch, rule), partition_paths(batch, rule)
    except TidelockError as error:
        # A key column that is null, or gone from the schema: no row of it can be right.
        everywhere = pa.array([True] * batch.num_rows)
        report.count(f"no key can be made of its columns: {error.message}", everywhere, batch)
        return
    differs = pc.fill_null(pc.not_equal(batch.column(RECORD_KEY), made), fill_value=True)
    report.count(f"{RECORD_KEY} is not what its columns give", differs, batch)
    report.count(
        "its columns belong in another partition", _differs(folders, piece.partition), batch
    )


def _differs(values: pa.ChunkedArray | pa.Array, expected: str) -> pa.Array:
    return pc.fill_null(pc.not_equal(values, expected), fill_value=True)


def _among(values: pa.ChunkedArray, allowed: list[str]) -> pa.Array:
    return pc.is_in(values, value_set=pa.array(allowed, pa.string()))


def _top(name: str, schema: pa.Schema) -> str:
    """Return the column that has a field, which may lie inside a struct (`a.b`)."""
    return name if name in schema.names else name.partition(".")[0]
