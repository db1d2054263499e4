"""Frames that are nothing but Parquet files of this machine, read without going through Spark.

To bring a file's rows to Python, Spark would turn columns into rows and rows into columns again.
Where the driver has the files itself, it reads them as they are. That holds for frames that read
files and do nothing else, and for columns in which Arrow finds the very values that Spark finds.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyarrow import types as pt
from pyspark.sql import DataFrame

from tidelock.engine.spark.schema import arrow_schema_of
from tidelock.engine.spark.source import plan_of

_FORMAT: Final = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
_RELATION: Final = "org.apache.spark.sql.execution.datasources.HadoopFsRelation"
_ASKED: Final = frozenset({"path", "paths"})
"""Options that say which files; any other may change what is read of them."""

_LEGACY: Final = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""Marks of files whose dates are those of another calendar, which Spark mends when it reads."""

_FILES_MAX: Final = 1_000


def local_files(frame: DataFrame) -> tuple[str, ...] | None:
    """Return the files that the frame reads, if it does nothing else and they are here."""
    plan = plan_of(frame)
    if str(plan.getClass().getSimpleName()) != "LogicalRelation":
        return None
    relation = plan.relation()
    if str(relation.getClass().getName()) != _RELATION:
        return None
    if str(relation.fileFormat().getClass().getName()) != _FORMAT:
        return None
    if not relation.partitionSchema().isEmpty() or not _is_plain(relation):
        return None
    places = [urlsplit(str(place)) for place in relation.location().inputFiles()]
    if not 0 < len(places) <= _FILES_MAX or any(place.scheme != "file" for place in places):
        return None
    return tuple(unquote(place.path) for place in places)


def table_of(frame: DataFrame, size_bytes_max: int) -> pa.Table | None:
    """Return the rows of a frame that is local files; None for others, and for too many rows.

    Whatever stands in the way of reading them here, Spark is left to say it.
    """
    try:
        files = local_files(frame) if size_bytes_max else None
        if files is None:
            return None
        wanted = arrow_schema_of(frame.schema)
        footers = [pq.read_metadata(file) for file in files]
        if sum(map(_size_bytes, footers)) > size_bytes_max:
            return None
        if not all(_gives(footer, wanted) for footer in footers):
            return None
        tables = [pq.read_table(file, columns=wanted.names, partitioning=None) for file in files]
        return pa.concat_tables([table.cast(wanted) for table in tables])
    except (OSError, pa.ArrowException, Py4JError):
        return None


def _is_plain(relation: Any) -> bool:
    options = relation.options()
    names = options.keySet().toSeq()
    return all(str(names.apply(i)) in _ASKED for i in range(names.length()))


def _size_bytes(footer: pq.FileMetaData) -> int:
    """Return what the rows will take, as far as the file says: without strings that repeat."""
    return sum(int(footer.row_group(i).total_byte_size) for i in range(footer.num_row_groups))


def _gives(footer: pq.FileMetaData, wanted: pa.Schema) -> bool:
    """Tell whether Arrow reads in a file what Spark would read in it."""
    if any(mark in (footer.metadata or {}) for mark in _LEGACY):
        return False
    found = footer.schema.to_arrow_schema()
    # Spark does not look at the case of names; whoever relies on that is left to Spark.
    if len(set(found.names)) < len(found.names) or set(found.names) != set(wanted.names):
        return False
    return all(_same(found.field(field.name).type, field.type) for field in wanted)


def _same(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Tell whether a type is read as it is. Times and nested types have readings of Spark's own."""
    if pt.is_nested(wanted) or pt.is_timestamp(wanted):
        return False
    if pt.is_large_string(found) or pt.is_dictionary(found):
        return bool(pt.is_string(wanted))
    return bool(found.equals(wanted))
