"""Whether two writes inserted the same key: their files are read where the ledger does not say."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.kernel.layers import read_layers
from tidelock.kernel.lookup import slice_keys
from tidelock.kernel.merge import MergeRule
from tidelock.kernel.results import FileResult
from tidelock.store.contract import ObjectStore
from tidelock.table.filegroup.slice import BaseFile, FileSlice, LogFile
from tidelock.table.naming import data_file
from tidelock.table.properties import MergeMode
from tidelock.table.schema.meta import PARTITION_PATH, RECORD_KEY
from tidelock.txn.draft import CommitDraft
from tidelock.txn.verdict import KeyCheck


def shares_no_key(
    store: ObjectStore,
    draft: CommitDraft,
    results: Sequence[FileResult],
    checks: Iterable[KeyCheck],
    *,
    unnamed: Collection[str] = (),
) -> bool:
    """Tell whether no key that a draft inserts is among those of other commits.

    `unnamed` are partitions with keys that the draft looked for and that are in no file of it. A
    file that is gone was cleaned or rolled back since; then nothing is certain.
    """
    mine: dict[str, pa.Array | None] = dict.fromkeys(unnamed)
    for check in checks:
        if check.partition not in mine:
            mine[check.partition] = _own_keys(store, draft, results, check.partition)
        keys = mine[check.partition]
        if keys is None or not _apart(store, keys, check):
            return False
    return True


def shares_named(rows: object, check: KeyCheck) -> bool | None:
    """Tell whether rows have a key that the other's commit names; None if that cannot be told.

    Rows without a partition may belong to any.
    """
    if check.keys is None or not isinstance(rows, pa.Table):
        return None
    paths = rows.column(PARTITION_PATH)
    here = pc.or_(paths.is_null(), pc.fill_null(pc.equal(paths, check.partition), fill_value=True))
    named = pa.array(sorted(check.keys), pa.string())
    return bool(pc.any(pc.is_in(rows.column(RECORD_KEY).filter(here), value_set=named)).as_py())


def keep_their_order(
    store: ObjectStore,
    ours: Sequence[LogFile],
    theirs: Sequence[LogFile],
    schema: pa.Schema,
    rule: MergeRule,
    *,
    reversed_order: bool,
) -> bool:
    """Tell whether readers see our log files, which did not read theirs, after theirs.

    With `reversed_order` readers apply theirs last: that gives the same rows if no key is in both,
    or if for each the greater ordering value decides. Otherwise ours must have no row for a key
    that theirs delete in natural order: it would be compared with the base row that was deleted.
    """
    if rule.mode is MergeMode.CUSTOM:
        return False
    fields = [pa.field(RECORD_KEY, pa.string()), *(schema.field(name) for name in rule.ordered_by)]
    mine, other = (_versions(store, logs, pa.schema(fields), rule) for logs in (ours, theirs))
    both = mine.join(other, "key", join_type="inner", right_suffix=" of other")
    if not both.num_rows:
        return True
    if not rule.ordered_by:
        return not reversed_order
    if not reversed_order:
        rows = pc.invert(both.column(" natural"))
        return not pc.any(pc.and_(both.column(" natural of other"), rows)).as_py()
    same = pa.repeat(pa.scalar(value=True), both.num_rows)
    for name in rule.ordered_by:
        left, right = both.column(name), both.column(f"{name} of other")
        missing = pc.or_(left.is_null(), right.is_null())
        same = pc.and_(same, pc.or_(missing, pc.fill_null(pc.equal(left, right), fill_value=False)))
    natural = pc.or_(both.column(" natural"), both.column(" natural of other"))
    return not pc.any(pc.or_(same, natural)).as_py()


def logs_of(results: Iterable[FileResult]) -> list[LogFile]:
    """Return the log files that were written."""
    named = [(each, (each.stat.path or "").rpartition("/")[2]) for each in results]
    sizes = [(each.stat.file_size_in_bytes or 0) for each, _ in named]
    files = (
        data_file(each.partition, name, size)
        for (each, name), size in zip(named, sizes, strict=True)
    )
    return [file for file in files if isinstance(file, LogFile)]


def _versions(
    store: ObjectStore, logs: Sequence[LogFile], schema: pa.Schema, rule: MergeRule
) -> pa.Table:
    """Return the keys in log files, with their ordering values and whether those do not count."""
    names = ["key", " natural", *rule.ordered_by]
    parts = [
        pa.table([layer.keys, layer.natural, *layer.ordering], names)
        for layer in read_layers(store, logs, schema, rule)
    ]
    nothing = pa.table([pa.array([], pa.string()), pa.array([], pa.bool_())], names[:2])
    return pa.concat_tables([nothing, *parts], promote_options="permissive")


def _apart(store: ObjectStore, keys: pa.Array, check: KeyCheck) -> bool:
    if check.keys is not None:
        named = pa.array(sorted(check.keys), pa.string())
        return not pc.any(pc.is_in(keys, value_set=named)).as_py()
    if not check.files:
        return False
    for path in check.files:
        found = _keys_in(store, path)
        if found is None:
            return False
        for theirs in found:
            if pc.any(pc.is_in(theirs, value_set=keys)).as_py():
                return False
    return True


def _own_keys(
    store: ObjectStore, draft: CommitDraft, results: Sequence[FileResult], partition: str
) -> pa.Array | None:
    """Return the keys that a draft inserts into a partition, and maybe others of its files."""
    named = draft.inserts.get(partition, frozenset())
    if named is not None:
        return pa.array(sorted(named), pa.string())
    parts: list[pa.Array] = []
    for result in results:
        if result.partition != partition or not result.stat.num_inserts:
            continue
        if result.written_keys is not None:
            parts.append(pa.array(result.written_keys, pa.string()))
            continue
        found = _keys_in(store, result.stat.path or "")
        if found is None:
            return None
        parts += found
    return pa.concat_arrays(parts) if parts else None


def _keys_in(store: ObjectStore, path: str) -> Iterator[pa.Array] | None:
    partition, _, name = path.rpartition("/")
    meta = store.head(path)
    file = None if meta is None else data_file(partition, name, meta.size_bytes)
    if file is None:
        return None
    if isinstance(file, BaseFile):
        return slice_keys(store, FileSlice(partition, file.file_id, file.instant, file))
    return slice_keys(store, FileSlice(partition, file.file_id, file.instant, None, (file,)))
