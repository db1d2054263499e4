"""The local engine's writing half: rows in Arrow tables, file groups written in threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.base.errors import Conflict, InvalidInput, InvariantBroken
from tidelock.base.runtime import worker_pool
from tidelock.engine.columnwise import goes_by_columns, write_by_columns
from tidelock.engine.contract import (
    MISSING_KEYS_MAX,
    Doomed,
    GroupId,
    GroupTask,
    PartitionProfile,
    Prepared,
    Profile,
    Tagged,
    TagRule,
    WritePlan,
)
from tidelock.engine.local import default_workers
from tidelock.engine.moving import waves
from tidelock.engine.task import by_slot, run_task
from tidelock.kernel.context import WriteContext
from tidelock.kernel.lookup import BucketRule, IndexKind, bucket_groups, keys_alive, keys_found
from tidelock.kernel.prepare import PrepareRule, identities, prepared, spread
from tidelock.kernel.results import FileResult
from tidelock.kernel.route import FILE_ID, places
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import FileSlice
from tidelock.table.schema.meta import PARTITION_PATH, RECORD_KEY

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LocalWriter:
    """Writes to one table with up to `workers` threads; a single task needs none."""

    store: ObjectStore
    workers: int = field(default_factory=default_workers)

    @property
    def tries_twice(self) -> bool:
        """Each task runs once: one that fails ends the write."""
        return False

    def schema(self, data: object) -> pa.Schema:
        """Return the columns of an Arrow table."""
        return _table(data).schema

    def prepare(self, data: object, rule: PrepareRule) -> Prepared:
        """Return the rows of an Arrow table, prepared."""
        rows = prepared(_table(data), rule)
        paths = rows.column(PARTITION_PATH).unique().drop_null().to_pylist()
        return Prepared(rows, rows.num_rows, tuple(sorted(paths)))

    def tag(self, prepared: Prepared, rule: TagRule) -> Tagged:
        """Return the rows with the file groups that the index finds."""
        rows = _table(prepared.rows)
        if rule.anywhere:
            rows = spread(rows, list(rule.partitions))
        rows = self._located(rows, rule)
        deletes = rule.drop_missing or rule.deletes_by in rows.column_names
        if not deletes and not rule.drop_found:
            # Nothing is dropped, so nobody asks which keys the table has.
            return Tagged(rows, _profile(rows))
        found = self._found(rows, rule)
        gone = _nothing_to_delete(rows, rule, found)
        dropped = pc.or_(gone, found) if rule.drop_found else gone
        if not pc.any(dropped).as_py():
            return Tagged(rows, _profile(rows))
        kept = rows.filter(pc.invert(dropped))
        return Tagged(kept, _profile(kept), _keys_of(rows.filter(gone)))

    def write(
        self,
        tagged: Tagged,
        plan: WritePlan,
        context: WriteContext,
        *,
        doomed: Doomed | None = None,
    ) -> tuple[FileResult, ...]:
        """Write every file group of the plan, several at a time; `doomed` is asked before each."""

        def check() -> None:
            if doomed is not None and (reason := doomed()) is not None:
                raise Conflict(
                    f"the write of {context.instant} was stopped: {reason}",
                    hint="it is tried again on what the others have written",
                )

        def run(part: tuple[GroupTask, pa.Table]) -> tuple[int, tuple[FileResult, ...]]:
            check()
            return part[0].slot, run_task(self.store, context, *part)

        rows = _table(tagged.rows)
        if goes_by_columns(rows, plan):
            with worker_pool("tidelock-load", self.workers) as pool:

                def each(run: Callable[[S], T], work: Sequence[S]) -> list[T]:
                    futures = [pool.submit(run, one) for one in work]
                    wait(futures)  # a file is given up only when nobody writes to it any more
                    return [future.result() for future in futures]

                return by_slot(
                    write_by_columns(self.store, context, rows, plan, each=each, check=check)
                )
        done = []
        for wave in waves(rows, plan, self._all, tasks_min=self.workers):
            done += self._all(run, wave)
        return by_slot(done)

    def release(self, prepared: Prepared) -> None:
        """Nothing is kept beyond the objects themselves."""

    def _located(self, rows: pa.Table, rule: TagRule) -> pa.Table:
        """Return the rows with their file ids, a row for each group that has its key."""
        match rule.kind:
            case IndexKind.NONE:
                return _with_groups(rows, pa.nulls(rows.num_rows, pa.string()))
            case IndexKind.BUCKET:
                return _with_groups(rows, bucket_groups(rows, _bucket(rule), self._all))
            case IndexKind.SIMPLE | IndexKind.BLOOM:
                at, groups = self._looked_up(rows, rule)
                return _joined(rows, at, groups)

    def _looked_up(self, rows: pa.Table, rule: TagRule) -> tuple[pa.Array, pa.Array]:
        """Return the places of rows whose key their partition has, and the file id of each.

        After blind inserts a key may be in several groups; then its row's place comes as often.
        """
        keys = identities(rows).dictionary_encode()
        if len(keys.dictionary) == rows.num_rows:
            return self._living(rows, *self.hits(rows, rule), rule)
        # Each key is looked for once, and what is found holds for all rows that have it.
        first = pc.index_in(keys.dictionary, value_set=keys.cast(pa.string()))
        ones = rows.take(first)
        at, groups = self._living(ones, *self.hits(ones, rule), rule)
        every = pa.table({"code": keys.indices, "at": _counted(rows.num_rows)})
        found = pa.table({"code": at.cast(keys.indices.type), "group": groups})
        both = every.join(found, "code", join_type="inner").sort_by("at")
        return _whole(both.column("at")), _whole(both.column("group"))

    def hits(self, rows: pa.Table, rule: TagRule) -> tuple[pa.Array, pa.Array]:
        """Return what `_looked_up` does, for rows of different keys.

        Keys that log files deleted are among those found, unless those found are to be dropped.
        """
        paths = _whole(rows.column(PARTITION_PATH))
        keys = _whole(rows.column(RECORD_KEY))
        inside: dict[str, pa.Array] = {}
        names = paths.unique().to_pylist()
        for name in names:
            # With one partition, as in most small writes, no row is moved.
            mine = None if len(names) == 1 else pc.indices_nonzero(pc.equal(paths, name))
            inside[name] = mine
        chosen = [piece for piece in rule.slices if piece.partition in inside]

        def look(piece: FileSlice) -> tuple[FileSlice, pa.Array]:
            mine = inside[piece.partition]
            asked = keys if mine is None else keys.take(mine)
            whole = rule.logged(piece) if rule.drop_found else None
            if rule.live is None or whole is None:
                found = keys_found(self.store, piece, asked, rule.kind)
            else:
                found = keys_alive(self.store, whole, asked, rule.live)
            return piece, found if mine is None else mine.take(found).cast(pa.int64())

        hits = [(piece, at) for piece, at in self._all(look, chosen) if len(at)]
        places = pa.concat_arrays([pa.array([], pa.int64()), *(at for _, at in hits)])
        names = [pa.repeat(pa.scalar(piece.file_id), len(at)) for piece, at in hits]
        return places, pa.concat_arrays([pa.array([], pa.string()), *names])

    def _living(
        self, rows: pa.Table, at: pa.Array, groups: pa.Array, rule: TagRule
    ) -> tuple[pa.Array, pa.Array]:
        """Return what was found without the groups that had a key and deleted it.

        Only keys in several groups are looked at. One that is alive in none keeps the first.
        """
        live = rule.live
        if live is None or rule.drop_found or pc.count_distinct(at).as_py() == len(at):
            return at, groups
        several = _repeated(at)
        paths, keys = (_whole(rows.column(name)) for name in (PARTITION_PATH, RECORD_KEY))
        pairs = zip(
            paths.take(at.take(several)).to_pylist(),
            groups.take(several).to_pylist(),
            strict=True,
        )
        doubtful: dict[GroupId, list[int]] = {}
        for number, pair in zip(several.to_pylist(), pairs, strict=True):
            if pair in live.logged:
                doubtful.setdefault(pair, []).append(number)

        def look(part: tuple[GroupId, list[int]]) -> list[int]:
            group, numbers = part
            mine = keys.take(at.take(pa.array(numbers)))
            alive = set(keys_alive(self.store, live.logged[group], mine, live).to_pylist())
            return [number for place, number in enumerate(numbers) if place not in alive]

        kept = np.ones(len(at), dtype=bool)
        for dead in self._all(look, list(doubtful.items())):
            kept[dead] = False
        rows_at = at.to_numpy(zero_copy_only=False)
        alive_at = np.isin(rows_at, rows_at[kept])
        first = np.zeros(len(at), dtype=bool)
        first[np.unique(rows_at, return_index=True)[1]] = True
        chosen = pa.array(kept | (first & ~alive_at))
        return at.filter(chosen), groups.filter(chosen)

    def _found(self, rows: pa.Table, rule: TagRule) -> pa.Array:
        """Mark the rows whose key, or at least whose bucket's group, the table has."""
        if rule.kind is not IndexKind.BUCKET:
            return _whole(rows.column(FILE_ID)).is_valid()
        if rule.drop_found:
            at, _ = self._looked_up(rows, rule)
            return pc.is_in(_counted(rows.num_rows), value_set=at)
        at, pairs = places(rows)
        known = {(piece.partition, piece.file_id) for piece in rule.slices}
        return pa.array([pair in known for pair in pairs], pa.bool_()).take(at)

    def _all(self, run: Callable[[S], T], work: Sequence[S]) -> list[T]:
        """Return the outcome for each piece of work, in its order; the first error ends it."""
        workers = min(self.workers, len(work))
        if workers <= 1:
            return [run(each) for each in work]
        with worker_pool("tidelock-write", workers) as pool:
            futures = [pool.submit(run, each) for each in work]
            try:
                return [future.result() for future in futures]
            except BaseException:
                for future in futures:
                    future.cancel()
                raise


def _nothing_to_delete(rows: pa.Table, rule: TagRule, found: pa.Array) -> pa.Array:
    """Mark the rows that would delete what the table does not have."""
    if rule.drop_missing:
        return pc.invert(found)
    if rule.deletes_by is None or rule.deletes_by not in rows.column_names:
        return pa.repeat(pa.scalar(value=False), rows.num_rows)
    deletes = pc.fill_null(_whole(rows.column(rule.deletes_by)), fill_value=False)
    return pc.and_(deletes, pc.invert(found))


def _keys_of(rows: pa.Table) -> dict[str, frozenset[str] | None]:
    """Return the keys of rows by partition, None where they are too many to name."""
    found: dict[str, frozenset[str] | None] = {}
    paths = _whole(rows.column(PARTITION_PATH))
    for partition in paths.unique().to_pylist():
        keys = rows.column(RECORD_KEY).filter(pc.equal(paths, partition))
        few = len(keys) <= MISSING_KEYS_MAX
        found[partition] = frozenset(keys.to_pylist()) if few else None
    return found


def _profile(rows: pa.Table) -> Profile:
    at, pairs = places(rows)
    counts = np.bincount(at.to_numpy(zero_copy_only=False), minlength=len(pairs))
    inserts: dict[str, int] = {}
    updates: dict[str, dict[str, int]] = {}
    for (partition, file_id), count in zip(pairs, counts.tolist(), strict=True):
        if file_id is None:
            inserts[partition] = count
        else:
            updates.setdefault(partition, {})[file_id] = count
    return {
        partition: PartitionProfile(
            inserts.get(partition, 0), dict(sorted(updates.get(partition, {}).items()))
        )
        for partition in sorted({*inserts, *updates})
    }


def _joined(rows: pa.Table, at: pa.Array, groups: pa.Array) -> pa.Table:
    """Return the rows with their groups: once each, and once more for each further group."""
    first = pc.index_in(_counted(rows.num_rows), value_set=at)
    tagged = _with_groups(rows, groups.take(first))
    if len(at) == len(first) - first.null_count:
        return tagged
    again = pc.invert(pc.is_in(_counted(len(at)), value_set=first.drop_null().cast(pa.int64())))
    more = _with_groups(rows.take(at.filter(again)), groups.filter(again))
    return pa.concat_tables([tagged, more])


def _with_groups(rows: pa.Table, groups: pa.Array) -> pa.Table:
    return rows.append_column(pa.field(FILE_ID, groups.type), groups)


def _repeated(at: pa.Array) -> pa.Array:
    """Return where the values are that come more than once."""
    counts = at.value_counts()
    often = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    return pc.indices_nonzero(pc.is_in(at, value_set=often)).cast(pa.int64())


def _counted(size: int) -> pa.Array:
    ones = pa.repeat(pa.scalar(1, pa.int64()), size)
    return pc.subtract(pc.cumulative_sum(ones), 1)


def _bucket(rule: TagRule) -> BucketRule:
    if rule.bucket is None:
        raise InvariantBroken("rows are tagged by bucket, and the rule has no buckets")
    return rule.bucket


def _table(data: object) -> pa.Table:
    if not isinstance(data, pa.Table):
        raise InvalidInput(f"the local engine takes Arrow tables, not {type(data).__name__}")
    return data


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    if isinstance(found, pa.ChunkedArray):
        found = pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], column.type)
    return found
